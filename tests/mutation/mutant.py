"""Run, in a separate process, code that may crash or hang."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable

NOTHING_CHANGED, NOTICED, SURVIVED = 2, 1, 0
TIMEOUT_S = 60


def noticed(change: Callable[[], bool], fails: Callable[[], bool]) -> bool | None:
    """Whether a change is noticed, by a failure, a crash or a hang; None: `change` returned False (no change)."""
    child = os.fork()
    if child == 0:
        faulthandler.disable()  # a crash is an expected outcome
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(TIMEOUT_S)
        try:
            os._exit(NOTHING_CHANGED if not change() else NOTICED if fails() else SURVIVED)
        finally:
            os._exit(NOTICED)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == NOTHING_CHANGED:
        return None
    return not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == SURVIVED)
