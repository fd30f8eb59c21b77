"""Starts worker processes: executed from a configured command here, or forked by the launcher (launcher_spawner.py).
Either way a worker has a control socket and a standard error of its own; worker_process.py handles their contents.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    from vgpud.serving.succession import Incoming, Outgoing

UNKNOWN_CODE = 1  # exit code of a process that this one could not reap


class Process(Protocol):
    """One worker's process. `on_exit` is called once, on the event loop, when it has ended and `returncode` is set."""

    pid: int  # 0: not known yet
    uid: int | None  # its user id, where workers have ids of their own
    returncode: int | None  # negative: the signal that ended it
    on_exit: Callable[[], None]

    @property
    def key(self) -> str:
        """Identifies the process in Spawner.dump()."""

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal, if it still runs."""

    def when_started(self, callback: Callable[[], None]) -> None:
        """Call back once the pid is known, which may be now; never if the launcher dies before it reports the pid."""


class Spawner(Protocol):
    """Starts the supervisor's workers."""

    missing: tuple[str, ...]  # parts of a worker's isolation that the kernel refuses
    own_ids: bool | None  # whether workers have user ids of their own; None: not known yet

    def spawn(
        self, control_fd: int, stderr_fd: int, environment: dict[str, str], *, warm: bool, uid: int | None = None
    ) -> Process:
        """Start a worker; the descriptors stay the caller's. Raises OSError.

        `uid`: of a running worker, whose user id this one shall have, too; None: one that no other worker has.
        """

    def dump(self, outgoing: Outgoing) -> list[dict[str, Any]]:
        """The state for adopt(), in the next vgpud in this process."""

    def adopt(self, dumped: list[dict[str, Any]], incoming: Incoming) -> dict[str, Process]:
        """Adopt the processes of the previous vgpud. Returns them by their keys."""

    def close(self) -> None:
        """Start no further processes; running ones continue."""


def ignore() -> None:
    pass


def reap(pid: int, process: subprocess.Popen[bytes] | None) -> int | None:
    """Reap a child if it has ended; None while it runs. If it is another process's child (after a crash of vgpud) its
    exit code is unknown.
    """
    if process is not None:
        return process.poll()
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return UNKNOWN_CODE
    return os.waitstatus_to_exitcode(status) if ended else None


class _ExecutedProcess:
    """A child of this process."""

    def __init__(self, pid: int, process: subprocess.Popen[bytes] | None = None) -> None:
        """`process` is None if the previous vgpud in this process started it."""
        self.pid = pid
        self.key = str(pid)
        self.uid: int | None = None
        self._process = process
        self.returncode: int | None = None
        self.on_exit: Callable[[], None] = ignore
        self._pidfd = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    def signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def when_started(self, callback: Callable[[], None]) -> None:
        callback()

    def _reap(self) -> None:
        self.returncode = reap(self.pid, self._process)
        if self.returncode is None:
            return
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.on_exit()


class CommandSpawner:
    """Executes a command for each worker, with `--control-fd N`, and `--warm` if the worker shall create a context."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.missing: tuple[str, ...] = ("what worker_command does not do itself",)
        self.own_ids: bool | None = False
        self._command = command
        self._environment = environment
        self._running: WeakValueDictionary[int, _ExecutedProcess] = WeakValueDictionary()

    def spawn(
        self, control_fd: int, stderr_fd: int, environment: dict[str, str], *, warm: bool, uid: int | None = None
    ) -> Process:
        """See Spawner; the user id is the command's choice."""
        process = subprocess.Popen(
            [*self._command, "--control-fd", str(control_fd), *(["--warm"] if warm else [])],
            env=self._environment | environment,
            pass_fds=(control_fd,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr_fd,
            # vgpud handles a terminal's ^C and then ends its workers. Not a session of its own: the kernel schedules
            # sessions as groups, and a call with an answer would take a fifth longer on two processors.
            process_group=0,
        )
        made = self._running[process.pid] = _ExecutedProcess(process.pid, process)
        return made

    def dump(self, outgoing: Outgoing) -> list[dict[str, Any]]:
        """See Spawner."""
        return [{"pid": pid} for pid, process in self._running.items() if process.returncode is None]

    def adopt(self, dumped: list[dict[str, Any]], incoming: Incoming) -> dict[str, Process]:
        """See Spawner."""
        self._running |= {fields["pid"]: _ExecutedProcess(fields["pid"]) for fields in dumped}
        return {process.key: process for process in self._running.values()}

    def close(self) -> None:
        """See Spawner."""
