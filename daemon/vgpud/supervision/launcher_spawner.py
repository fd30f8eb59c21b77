"""Starts worker processes by a launcher (worker/launcher.py), which forks one for each order."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import select
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpud.log import get_logger
from vgpud.proto.packet import receive_packet
from vgpud.proto.packing import pack_map, unpack_map
from vgpud.worker.user_ids import UserIds

from .spawner import UNKNOWN_CODE, ignore, reap

if TYPE_CHECKING:
    from collections.abc import Callable

    from vgpud.serving.succession import Incoming, Outgoing

    from .spawner import Process

_PACKET_NBYTES = 64 * 1024
_MESSAGES_A_TURN = 64
_LAST_WORD_S = 1.0  # for the launcher to say how a worker ended


def _is_readable(fd: int) -> bool:
    poll = select.poll()  # any number, unlike select()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


class _LaunchedProcess:
    """A child of a launcher, which reports when and how it ended."""

    def __init__(self, key: str, on_late: Callable[[bool], None], uid: int | None, ids: UserIds | None) -> None:
        """`on_late`: called when the process is to be killed before the launcher has forked it, with whether it was
        told to end before. `ids`: where its user id is reserved, which is released at its end."""
        self.pid = 0
        self.key = key
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
        fields = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines())
        self.pid, self._pidfd = max(0, int(fields["Pid"])), pidfd
        if self._ended_early:
            self.signal(signal.SIGTERM)
        on_started, self._on_started = self._on_started, ignore
        on_started()

    @property
    def pidfd(self) -> int | None:
        """None until the process has been forked, and after its end."""
        return self._pidfd

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, as its pidfd tells."""
        return self._pidfd is None or _is_readable(self._pidfd)

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


class _Launcher:
    """One launcher of workers, and the processes that it has forked."""

    def __init__(
        self,
        pid: int,
        control: socket.socket,
        on_hello: Callable[[list[str], bool], None],
        on_gone: Callable[[], None],
        process: subprocess.Popen[bytes] | None = None,
        ids: UserIds | None = None,
    ) -> None:
        """`on_hello`: called with what the kernel refuses, and whether workers have user ids of their own.
        `on_gone`: called once, when the launcher takes no more orders. `ids`: of which each worker gets one."""
        self.pid = pid
        self._ids = ids
        self._process = process
        self._control: socket.socket | None = control
        self._on_hello, self._on_gone = on_hello, on_gone
        self._numbers = itertools.count(1)
        self._processes: dict[int, _LaunchedProcess] = {}
        self._is_retired = False  # started by the previous vgpud: it gets no orders
        asyncio.get_running_loop().add_reader(control.fileno(), self._read)

    @classmethod
    def start(
        cls,
        command: list[str],
        environment: dict[str, str],
        on_hello: Callable[[list[str], bool], None],
        on_gone: Callable[[], None],
        user_namespace_fd: int | None,
        ids: UserIds | None,
    ) -> _Launcher:
        """Execute a launcher. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = [] if user_namespace_fd is None else [user_namespace_fd]
        inside = [word for fd in given for word in ("--user-namespace-fd", str(fd))]
        try:
            with theirs:
                process = subprocess.Popen(
                    [*command, "--control-fd", str(theirs.fileno()), *inside],
                    env=environment,
                    pass_fds=(theirs.fileno(), *given),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    process_group=0,
                )
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        return cls(process.pid, ours, on_hello, on_gone, process, ids)

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
        process = self._processes[number] = _LaunchedProcess(f"{self.pid}:{number}", self._end_hung, uid, self._ids)
        return process

    def dump(self, outgoing: Outgoing) -> dict[str, Any] | None:
        """The state for adopt(); None when none of its processes runs."""
        running = {number: each.pidfd for number, each in self._processes.items() if each.pidfd is not None}
        if self._control is None or not running:
            return None
        pidfds = {number: outgoing.add(pidfd) for number, pidfd in running.items()}
        control, uids = outgoing.add(self._control.fileno()), {number: self._processes[number].uid for number in pidfds}
        return {"pid": self.pid, "control": control, "processes": pidfds, "uids": uids}

    @classmethod
    def adopt(
        cls, fields: dict[str, Any], incoming: Incoming, on_gone: Callable[[], None], ids: UserIds | None
    ) -> tuple[_Launcher, dict[str, Process]]:
        """Adopt the launcher of the previous vgpud, which gets no new orders. Returns its processes by their keys."""
        control = socket.socket(fileno=incoming.take(fields["control"]))
        control.setblocking(False)
        launcher = cls(fields["pid"], control, lambda _missing, _own_ids: None, on_gone)
        launcher._is_retired = True
        for number, name in fields["processes"].items():
            uid = fields.get("uids", {}).get(number)  # a vgpud from before 2026-11-29 does not pass user ids on
            if ids is not None and uid is not None:
                ids.reserve(uid)
            process = _LaunchedProcess(f"{launcher.pid}:{number}", lambda _: None, uid, ids)
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
        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            pidfd = -1
        else:
            loop.add_reader(pidfd, self._reap, pidfd)

        def kill() -> None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)

        def over(process: _LaunchedProcess) -> None:
            orphans.discard(process)
            if not orphans:
                kill()  # not earlier, because their pid namespace may end with the launcher
            process.exited(UNKNOWN_CODE)

        if not orphans:
            kill()
        for process in list(orphans):
            process.watch(lambda process=process: over(process))  # type: ignore[misc]

    def _reap(self, pidfd: int) -> None:
        if reap(self.pid, self._process) is None:
            return
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)

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
                get_logger().warning("the launcher of workers ended", launcher=self.pid)
                self.stop()
                return
            self._take(unpack_map(packet), fds)

    def _take(self, message: dict[str, Any], fds: list[int]) -> None:
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


class LauncherSpawner:
    """Orders workers from a launcher, which is started at the first order, and again when it has died or hangs."""

    def __init__(
        self,
        command: list[str],
        environment: dict[str, str],
        on_missing: Callable[[], None] = ignore,
        user_namespace_fd: int | None = None,
        ids: range | None = None,
    ) -> None:
        """`on_missing`: called when `missing` is known, if it is not empty. `user_namespace_fd`: for the launcher to
        enter; stays the caller's. `ids`: the user ids of workers."""
        self.missing: tuple[str, ...] = ()
        self.own_ids: bool | None = None
        self._ids = None if ids is None else UserIds(ids)
        self._user_namespace_fd = user_namespace_fd
        self._command = command
        self._environment = environment
        self._on_missing = on_missing
        self._launcher: _Launcher | None = None
        self._retired: list[_Launcher] = []  # launchers of previous vgpuds, and one that has died

    @property
    def pid(self) -> int:
        """The launcher's process id; 0: none runs."""
        return 0 if self._launcher is None else self._launcher.pid

    def spawn(
        self, control_fd: int, stderr_fd: int, environment: dict[str, str], *, warm: bool, uid: int | None = None
    ) -> Process:
        """See Spawner."""
        if self._launcher is not None:
            try:
                return self._launcher.order(control_fd, stderr_fd, environment, warm=warm, uid=uid)
            except ConnectionError:
                # The launcher has died. Its last messages are still to be read, but a new launcher is needed now.
                self._retired.append(self._launcher)
        gone: list[_Launcher] = []
        self._launcher = _Launcher.start(
            self._command,
            self._environment,
            self._take_hello,
            functools.partial(self._forget, gone),
            self._user_namespace_fd,
            self._ids,
        )
        gone.append(self._launcher)
        return self._launcher.order(control_fd, stderr_fd, environment, warm=warm, uid=uid)

    def dump(self, outgoing: Outgoing) -> list[dict[str, Any]]:
        """See Spawner."""
        launchers = [*self._retired, *([] if self._launcher is None else [self._launcher])]
        return [fields for launcher in launchers if (fields := launcher.dump(outgoing)) is not None]

    def adopt(self, dumped: list[dict[str, Any]], incoming: Incoming) -> dict[str, Process]:
        """See Spawner."""
        found: dict[str, Process] = {}
        for fields in dumped:
            gone: list[_Launcher] = []
            launcher, processes = _Launcher.adopt(fields, incoming, functools.partial(self._forget, gone), self._ids)
            gone.append(launcher)
            self._retired.append(launcher)
            found |= processes
        return found

    def close(self) -> None:
        """See Spawner."""
        for launcher in [*self._retired, *([] if self._launcher is None else [self._launcher])]:
            launcher.stop()

    def _take_hello(self, missing: list[str], own_ids: bool) -> None:
        self.missing, self.own_ids = tuple(missing), own_ids
        if self.missing:
            self._on_missing()

    def _forget(self, gone: list[_Launcher]) -> None:
        self._retired = [each for each in self._retired if each not in gone]
        if self._launcher in gone:
            self._launcher = None
