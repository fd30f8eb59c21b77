"""How worker processes come to be: forked by the launcher (worker/launcher.py), or executed from a configured command.

Either way a worker has a control socket and a standard error of its own; what they carry is worker_process.py's.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vgpud.log import get_logger
from vgpud.proto.packet import receive_packet
from vgpud.proto.packing import pack_map, unpack_map

if TYPE_CHECKING:
    from collections.abc import Callable

_PACKET_NBYTES = 64 * 1024
_MESSAGES_A_TURN = 64
_UNKNOWN_CODE = 1  # of a worker whose launcher died before it


class Process(Protocol):
    """One worker's process. `on_exit` is called once, on the event loop, when it has ended and `returncode` is set."""

    pid: int  # 0: not known yet
    returncode: int | None  # negative: the signal that ended it
    on_exit: Callable[[], None]

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""


class Spawner(Protocol):
    """Starts the supervisor's workers."""

    missing: tuple[str, ...]  # what the kernel refuses of a worker's isolation

    def spawn(self, control_fd: int, stderr_fd: int, environment: dict[str, str], *, warm: bool) -> Process:
        """Start a worker; the descriptors stay the caller's. Raises OSError."""

    def close(self) -> None:
        """Start no further ones; those that run continue."""


def _ignore() -> None:
    pass


class _ExecutedProcess:
    """A child of this process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self.returncode: int | None = None
        self.on_exit: Callable[[], None] = _ignore
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    def signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def _reap(self) -> None:
        self.returncode = self._process.poll()
        if self.returncode is None:
            return
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.on_exit()


class CommandSpawner:
    """Executes a command for each worker, which gets `--control-fd N`, and `--warm` when it shall make a context."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.missing: tuple[str, ...] = ("what worker_command does not do itself",)
        self._command = command
        self._environment = environment

    def spawn(self, control_fd: int, stderr_fd: int, environment: dict[str, str], *, warm: bool) -> Process:
        """See Spawner."""
        return _ExecutedProcess(
            subprocess.Popen(
                [*self._command, "--control-fd", str(control_fd), *(["--warm"] if warm else [])],
                env=self._environment | environment,
                pass_fds=(control_fd,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr_fd,
                # A terminal's ^C is vgpud's to take, which ends its workers then. Not a session of its own: the
                # kernel schedules sessions as groups, and a call with an answer would take a fifth longer on two
                # processors.
                process_group=0,
            )
        )

    def close(self) -> None:
        """See Spawner."""


class _LaunchedProcess:
    """A child of the launcher, which reports when and how it ended."""

    def __init__(self, on_late: Callable[[], None]) -> None:
        """`on_late`: called when it is to be killed and the launcher has not forked it yet."""
        self.pid = 0
        self.returncode: int | None = None
        self.on_exit: Callable[[], None] = _ignore
        self._pidfd: int | None = None
        self._on_late = on_late
        self._ended_early = False

    def signal(self, number: signal.Signals) -> None:
        if self.returncode is not None:
            return
        if self._pidfd is not None:
            # The first process of a pid namespace does not see signals that it has no handler for, but for this one.
            number = signal.SIGKILL if number == signal.SIGTERM else number
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)
        elif number == signal.SIGKILL:
            self._on_late()
        else:
            self._ended_early = True

    def started(self, pidfd: int) -> None:
        """The worker runs. Takes ownership of `pidfd`, which identifies the process: its number in the launcher's
        namespace may differ."""
        fields = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines())
        self.pid, self._pidfd = max(0, int(fields["Pid"])), pidfd
        if self._ended_early:
            self.signal(signal.SIGTERM)

    def watch(self, on_end: Callable[[], None]) -> None:
        """Its launcher is gone: call `on_end` when it has ended, as nothing else reports that."""
        if self._pidfd is None:
            on_end()
        else:
            asyncio.get_running_loop().add_reader(self._pidfd, on_end)

    def exited(self, code: int) -> None:
        """It has ended."""
        if self.returncode is not None:
            return
        self.returncode = code
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        self.on_exit()


class LauncherSpawner:
    """Orders workers from a launcher, which is started at the first order, and again when it has died or hangs."""

    def __init__(
        self, command: list[str], environment: dict[str, str], on_missing: Callable[[], None] = _ignore
    ) -> None:
        """`on_missing`: called when `missing` is known, if it is not empty."""
        self.missing: tuple[str, ...] = ()
        self._command = command
        self._environment = environment
        self._on_missing = on_missing
        self._numbers = itertools.count(1)
        self._processes: dict[int, _LaunchedProcess] = {}
        self._launcher: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    @property
    def pid(self) -> int:
        """The launcher's process id; 0: none runs."""
        return 0 if self._launcher is None else self._launcher.pid

    def spawn(self, control_fd: int, stderr_fd: int, environment: dict[str, str], *, warm: bool) -> Process:
        """See Spawner."""
        if self._control is None:
            self._start()
        assert self._control is not None
        number = next(self._numbers)
        order = pack_map({"type": "spawn", "id": number, "warm": warm, "environment": environment})
        socket.send_fds(self._control, [order], [control_fd, stderr_fd])
        process = self._processes[number] = _LaunchedProcess(self._end_hung)
        return process

    def close(self) -> None:
        """See Spawner."""
        if self._control is not None:
            self._stop()

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._launcher = subprocess.Popen(
                    [*self._command, "--control-fd", str(theirs.fileno())],
                    env=self._environment,
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    process_group=0,
                )
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        self._control = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read)

    def _end_hung(self) -> None:
        """A worker was not even forked in the time that it had to be ready: no later order would fare better."""
        if self._control is not None:
            get_logger().warning("the launcher of workers hangs, and is killed", launcher=self.pid)
            self._stop()

    def _stop(self) -> None:
        """Take nothing more from the launcher, and kill it when what it has forked is over."""
        assert self._control is not None
        assert self._launcher is not None
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        self._control.close()
        self._control = None
        launcher, self._launcher = self._launcher, None
        orphans = set(self._processes.values())
        self._processes.clear()
        loop, pidfd = asyncio.get_running_loop(), os.pidfd_open(launcher.pid)

        def reap() -> None:
            if launcher.poll() is not None:
                loop.remove_reader(pidfd)
                os.close(pidfd)

        def over(process: _LaunchedProcess) -> None:
            orphans.discard(process)
            if not orphans:
                launcher.kill()  # not before: their pid namespace may end with it
            process.exited(_UNKNOWN_CODE)

        loop.add_reader(pidfd, reap)
        if not orphans:
            launcher.kill()
        for process in list(orphans):
            process.watch(lambda process=process: over(process))  # type: ignore[misc]

    def _read(self) -> None:
        """Take what it says, a bounded number of messages a turn."""
        for _ in range(_MESSAGES_A_TURN):
            assert self._control is not None
            received = receive_packet(self._control, _PACKET_NBYTES)
            if received is None:
                return
            packet, fds = received
            if not packet:
                get_logger().warning("the launcher of workers ended", launcher=self.pid)
                self._stop()
                return
            self._take(unpack_map(packet), fds)

    def _take(self, message: dict[str, Any], fds: list[int]) -> None:
        if message["type"] == "hello":
            self.missing = tuple(message["missing"])
            if self.missing:
                self._on_missing()
            return
        process = self._processes[message["id"]]
        if message["type"] == "started":
            process.started(fds[0])
            return
        del self._processes[message["id"]]
        if message["type"] == "failed":
            get_logger().warning("the launcher could not fork a worker", why=message["why"])
        process.exited(message.get("code", _UNKNOWN_CODE))
