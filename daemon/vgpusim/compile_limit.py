"""A bound on the processor time of one compilation.

LLVM cannot be interrupted, so a compilation that passes the bound ends with its process. Processor time, not the clock:
how busy the host is does not matter.
"""

from __future__ import annotations

import _thread
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class CompileLimit:
    """Watches what each thread compiles. One for each process."""

    def __init__(self, limit_s: float, end: Callable[[str], object]) -> None:
        """Call `end` with what was compiled, in another thread, when it has taken `limit_s`."""
        self._limit_s, self._end = limit_s, end

    @contextmanager
    def over(self, what: str) -> Iterator[None]:
        """Bound the body, which runs in this thread."""
        done = _thread.allocate_lock()
        done.acquire()
        clock = time.pthread_getcpuclockid(_thread.get_ident())
        _thread.start_new_thread(self._watch, (done, clock, time.clock_gettime(clock), what))
        try:
            yield
        finally:
            done.release()

    def _watch(self, done: _thread.LockType, clock: int, begun_s: float, what: str) -> None:
        left_s = self._limit_s
        # A thread uses at most as much processor time as passes on the clock.
        while not done.acquire(timeout=max(left_s, 0.01)):
            try:
                left_s = self._limit_s - (time.clock_gettime(clock) - begun_s)
            except OSError:
                return  # the thread has just ended
            if left_s <= 0:
                self._end(what)
                return
