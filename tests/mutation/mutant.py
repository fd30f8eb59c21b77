"""Run what may die or hang in a process of its own."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable

NOTHING_CHANGED, NOTICED, SURVIVED = 2, 1, 0
TIMEOUT_S = 60


def noticed(change: Callable[[], bool], fails: Callable[[], bool]) -> bool | None:
    """Whether a change is noticed, by a failure, a death or a hang; None: `change` says that it changes nothing."""
    child = os.fork()
    if child == 0:
        faulthandler.disable()  # the test looks for a crash
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
