"""Processes by their pidfd."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess


def pid_of(pidfd: int) -> int:
    """The process id, in this process's namespace; 0: it has ended, or has none here."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines())
    return max(0, int(fields["Pid"]))


def has_ended(pidfd: int) -> bool:
    poll = select.poll()  # any number, unlike select()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def kill(pidfd: int, process: subprocess.Popen[bytes] | None = None) -> None:
    """Kill a process, which may be a child of this one, and reap it when it has ended. Takes ownership of `pidfd`.

    Args:
        process: Of a child that this process started with subprocess; it must reap the child itself.
    """
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    asyncio.get_running_loop().add_reader(pidfd, _reap, pidfd, process)


def _reap(pidfd: int, process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        if process.poll() is None:
            return
    else:
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG) is None:
                return
    asyncio.get_running_loop().remove_reader(pidfd)
    os.close(pidfd)
