"""A program and all the processes that it has started, in whatever group or session they are."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


class Descendants:
    """The descendants of the program that this process is about to start. A separate process
    group is not an alternative: it would take the terminal from the program."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become our children, not init's
        self._others = set(_children(os.getpid()))

    def pids(self, program: int) -> list[int]:
        """The live processes, program included. Ended ones are reaped, so the program's exit code is lost."""
        found = [program, *(pid for pid in _children(os.getpid()) if pid not in {program, *self._others})]
        for pid in found:  # the loop appends to the list
            found += _children(pid)
        return [pid for pid in found if not _is_over(pid)]

    def signal(self, program: int, number: signal.Signals) -> None:
        """Send a signal to the program and its descendants."""
        for pid in self.pids(program):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _children(pid: int) -> list[int]:
    """The children of all threads of a process; empty on a kernel without CONFIG_PROC_CHILDREN."""
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in file.read_text().split()]
    return found


def _is_over(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not Path(f"/proc/{pid}").exists()
