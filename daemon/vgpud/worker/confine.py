"""What a worker gives up before it meets its client, so that one that is taken over can do little to others."""

from __future__ import annotations

import contextlib
import ctypes
import resource

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38


def confine() -> None:
    """Give up privileges that no backend needs. Each step is as good as the kernel allows; none is undone."""
    # When memory runs out the kernel should end a worker, which costs one client, not vgpud.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold a tenant's memory
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # workers share a user: this keeps one from tracing or reading another
