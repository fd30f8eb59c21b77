"""A launcher (worker/launcher.py) and the workers that it has forked, as vgpud sees them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
from typing import TYPE_CHECKING, Any

from vgpud.log import get_logger
from vgpud.proto.packet import receive_packet
from vgpud.proto.packing import pack_map, unpack_map

from .pidfd import has_ended, kill, pid_of
from .spawner import UNKNOWN_CODE, ignore

if TYPE_CHECKING:
    from collections.abc import Callable

    from vgpud.serving.succession import Incoming, Outgoing
    from vgpud.worker.user_ids import UserIds

    from .spawner import Process

_PACKET_NBYTES = 64 * 1024
_MESSAGES_A_TURN = 64
_LAST_WORD_S = 1.0  # for the launcher to say how a worker ended


class _LaunchedProcess:
    """A child of a launcher, which reports when and how it ended."""

    def __init__(
        self, launcher: Launcher, number: int, on_late: Callable[[bool], None], uid: int | None, ids: UserIds | None
    ) -> None:
        """`on_late`: called when the process is to be killed before the launcher has forked it, with whether it was
        told to end before. `ids`: where its user id is reserved, which is released at its end."""
        self.pid = 0
        self._launcher, self._number = launcher, number
        self.uid = uid
        self._ids = ids
        self.returncode: int | None = None
        self.on_exit: Callable[[], None] = ignore
        self._pidfd: int | None = None
        self._on_late = on_late
        self._ended_early = False
        self._on_started: Callable[[], None] = ignore

    def signal(self, number: signal.Signals) -> None:
        if self.returncode is not None:
            return
        if self._pidfd is not None:
            # Signals without a handler do not reach the first process of a pid namespace, except for SIGKILL.
            number = signal.SIGKILL if number == signal.SIGTERM else number
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)
        elif number == signal.SIGKILL:
            self._on_late(self._ended_early)
        else:
            self._ended_early = True

    def when_started(self, callback: Callable[[], None]) -> None:
        if self._pidfd is None:
            self._on_started = callback
        else:
            callback()

    def started(self, pidfd: int) -> None:
        """The worker runs. Takes ownership of `pidfd`, which identifies the process: its number in the launcher's
        namespace may differ."""
        self.pid, self._pidfd = pid_of(pidfd), pidfd
        if self._ended_early:
            self.signal(signal.SIGTERM)
        on_started, self._on_started = self._on_started, ignore
        on_started()

    @property
    def key(self) -> str:
        """Complete once the launcher's process is known, as it is when the process runs."""
        return f"{self._launcher.pid}:{self._number}"

    @property
    def pidfd(self) -> int | None:
        """None until the process has been forked, and after its end."""
        return self._pidfd

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, as its pidfd tells."""
        return self._pidfd is None or has_ended(self._pidfd)

    def watch(self, on_end: Callable[[], None]) -> None:
        """The launcher has ended: watch the process and call `on_end` at its end, which nothing else reports."""
        if self._pidfd is None:
            on_end()
        else:
            asyncio.get_running_loop().add_reader(self._pidfd, on_end)

    def exited(self, code: int) -> None:
        """Record that the process has ended with this code."""
        if self.returncode is not None:
            return
        self.returncode = code
        if self._ids is not None and self.uid is not None:
            self._ids.release(self.uid)
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        self.on_exit()


class Launcher:
    """One launcher of workers, and the processes that it has forked."""

    def __init__(
        self,
        control: socket.socket,
        on_hello: Callable[[list[str], bool], None],
        on_gone: Callable[[], None],
        on_unborn: Callable[[], None] = ignore,
        ids: UserIds | None = None,
    ) -> None:
        """`on_hello`: called with what the kernel refuses, and whether workers have user ids of their own.
        `on_gone`: called once, when the launcher takes no more orders. `on_unborn`: called if the launcher hangs and
        has not even been forked. `ids`: of which each worker gets one."""
        self.pid = 0  # not known yet
        self._pidfd: int | None = None
        self._ids = ids
        self._control: socket.socket | None = control
        self._on_hello, self._on_gone, self._on_unborn = on_hello, on_gone, on_unborn
        self._numbers = itertools.count(1)
        self._processes: dict[int, _LaunchedProcess] = {}
        self._is_retired = False  # started by the previous vgpud: it gets no orders
        asyncio.get_running_loop().add_reader(control.fileno(), self._read)

    def order(
        self, control_fd: int, stderr_fd: int, environment: dict[str, str], *, warm: bool, uid: int | None
    ) -> Process:
        """Order a worker; see Spawner.spawn. Raises OSError."""
        assert self._control is not None
        number = next(self._numbers)
        if self._ids is not None:
            uid = self._ids.reserve(uid)
        order = pack_map({"type": "spawn", "id": number, "warm": warm, "environment": environment, "uid": uid})
        try:
            socket.send_fds(self._control, [order], [control_fd, stderr_fd])
        except OSError:
            if self._ids is not None and uid is not None:
                self._ids.release(uid)
            raise
        process = self._processes[number] = _LaunchedProcess(self, number, self._end_hung, uid, self._ids)
        return process

    def dump(self, outgoing: Outgoing) -> dict[str, Any] | None:
        """The state for adopt(); None when none of its processes runs."""
        running = {number: each.pidfd for number, each in self._processes.items() if each.pidfd is not None}
        if self._control is None or not running:
            return None
        pidfds = {number: outgoing.add(pidfd) for number, pidfd in running.items()}
        control, uids = outgoing.add(self._control.fileno()), {number: self._processes[number].uid for number in pidfds}
        own = None if self._pidfd is None else outgoing.add(self._pidfd)
        return {"pid": self.pid, "pidfd": own, "control": control, "processes": pidfds, "uids": uids}

    @classmethod
    def adopt(
        cls, fields: dict[str, Any], incoming: Incoming, on_gone: Callable[[], None], ids: UserIds | None
    ) -> tuple[Launcher, dict[str, Process]]:
        """Adopt the launcher of the previous vgpud, which gets no new orders. Returns its processes by their keys."""
        control = socket.socket(fileno=incoming.take(fields["control"]))
        control.setblocking(False)
        launcher = cls(control, lambda _missing, _own_ids: None, on_gone)
        launcher._is_retired = True
        if fields["pidfd"] is not None:
            with contextlib.suppress(KeyError):  # the manager drops that of a process that has ended
                launcher._born(incoming.take(fields["pidfd"]))
        launcher.pid = fields["pid"]  # also if it has ended: it is in the keys of its processes
        for number, name in fields["processes"].items():
            uid = fields["uids"][number]
            if ids is not None and uid is not None:
                ids.reserve(uid)
            process = _LaunchedProcess(launcher, int(number), lambda _: None, uid, ids)
            process.started(incoming.take(name))
            launcher._processes[int(number)] = process
            if process.has_ended:  # it ended while no vgpud ran, or the previous vgpud has read the launcher's message
                asyncio.get_running_loop().call_later(_LAST_WORD_S, launcher._presume_exited, int(number))
        return launcher, {process.key: process for process in launcher._processes.values()}

    def _presume_exited(self, number: int) -> None:
        if (process := self._processes.pop(number, None)) is not None:
            process.exited(UNKNOWN_CODE)
            self._stop_if_done()

    def _stop_if_done(self) -> None:
        if self._is_retired and not self._processes:
            self.stop()

    def _end_hung(self, was_ended: bool) -> None:
        """Stop using a launcher that has not forked a worker within its start timeout: later orders would fail, too. A
        worker that `was_ended` meanwhile says nothing of the launcher: at vgpud's end a spare may be on its way."""
        if self._control is not None:
            if not was_ended:
                get_logger().warning("the launcher of workers hangs, and is killed", launcher=self.pid)
            if self._pidfd is None:
                self._on_unborn()
            self.stop()

    def stop(self) -> None:
        """Order nothing more from the launcher, and kill it when the processes that it has forked have ended."""
        if self._control is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._control.fileno())
        self._control.close()
        self._control = None
        self._on_gone()  # called first, because a callback below may order another worker
        orphans = set(self._processes.values())
        self._processes.clear()

        def end() -> None:
            if self._pidfd is not None:
                kill(self._pidfd)
                self._pidfd = None

        def over(process: _LaunchedProcess) -> None:
            orphans.discard(process)
            if not orphans:
                end()  # not earlier, because their pid namespace may end with the launcher
            process.exited(UNKNOWN_CODE)

        if not orphans:
            end()
        for process in list(orphans):
            process.watch(lambda process=process: over(process))  # type: ignore[misc]

    def _born(self, pidfd: int) -> None:
        """The launcher's process is known. Takes ownership of `pidfd`."""
        self.pid, self._pidfd = pid_of(pidfd), pidfd

    def _read(self) -> None:
        """Handle the launcher's messages, a bounded number in each turn of the loop."""
        for _ in range(_MESSAGES_A_TURN):
            if self._control is None:
                return
            received = receive_packet(self._control, _PACKET_NBYTES)
            if received is None:
                return
            packet, fds = received
            if not packet:
                if not self._is_retired or self._processes:
                    get_logger().warning("the launcher of workers ended", launcher=self.pid)
                self.stop()
                return
            message = unpack_map(packet)
            if message["type"] in ("launched", "started") and not fds:  # this process had none left for it
                get_logger().warning("no descriptor is free for a process of the launcher", launcher=self.pid)
                self.stop()
                return
            self._take(message, fds)

    def _take(self, message: dict[str, Any], fds: list[int]) -> None:
        if message["type"] == "launched":
            self._born(fds[0])
            return
        if message["type"] == "hello":
            self._on_hello(message["missing"], message["own_ids"])
            return
        process = self._processes.get(message["id"])
        if process is None:  # ordered by the previous vgpud, which did not wait for it
            for fd in fds:
                os.close(fd)
            return
        if message["type"] == "started":
            process.started(fds[0])
            return
        del self._processes[message["id"]]
        if message["type"] == "failed":
            get_logger().warning("the launcher could not fork a worker", why=message["why"])
        process.exited(message.get("code", UNKNOWN_CODE))
        self._stop_if_done()
