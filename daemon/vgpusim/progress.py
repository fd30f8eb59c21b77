"""A line for the person who waits, when the simulator works on something for seconds."""

from __future__ import annotations

import _thread
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vgpusim import demangle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AFTER_S = 2.0
_LINE_NBYTES = 1000
_PAUSE_S = 10.0  # between two lines of a process
tell: Callable[[bytes], object] | None = None  # sends lines to the client being served; the log gets every line
_lock = _thread.allocate_lock()
_last_at = -_PAUSE_S


@contextmanager
def reported(what: str, after_s: float | None = None) -> Iterator[None]:
    """Write one line to the log, and to the client, when the body has taken `after_s` (AFTER_S)."""
    over = _thread.allocate_lock()
    over.acquire()
    limit_s = AFTER_S if after_s is None else after_s
    _thread.start_new_thread(_watch, (over, limit_s, what))  # Thread.start() would wait until the thread runs
    try:
        yield
    finally:
        over.release()


def _watch(over: _thread.LockType, after_s: float, what: str) -> None:
    while not over.acquire(timeout=after_s):
        after_s = _say(what)
        if not after_s:
            return


def _say(what: str) -> float:
    """Write the line. Returns 0, or, if the last line is too recent, how many seconds later it may be written."""
    global _last_at
    with _lock:
        now = time.monotonic()
        if now - _last_at < _PAUSE_S:
            return _last_at + _PAUSE_S - now
        _last_at = now
    line = demangle.text(what).encode(errors="replace")[:_LINE_NBYTES]
    os.write(2, b"<6>%s\n" % line)
    if tell is not None:
        tell(line)
    return 0.0
