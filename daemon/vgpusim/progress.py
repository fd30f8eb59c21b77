"""A line for the person who waits, when the simulator works on something for seconds."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vgpusim import demangle

if TYPE_CHECKING:
    from collections.abc import Iterator

AFTER_S = 2.0
_PAUSE_S = 10.0  # between two lines of a process
_lock = threading.Lock()
_last_at = -_PAUSE_S


@contextmanager
def reported(what: str, after_s: float = AFTER_S) -> Iterator[None]:
    """Write one line when the body has taken `after_s`: with syslog's level 5, as vgpud shows it where it is wanted."""
    timer = threading.Timer(after_s, _say, [what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say(what: str) -> None:
    global _last_at
    with _lock:
        if time.monotonic() - _last_at < _PAUSE_S:
            return
        _last_at = time.monotonic()
    os.write(2, b"<5>%s\n" % demangle.text(what).encode(errors="replace")[:1000])
