"""The descriptors that this process has open."""

from __future__ import annotations

import gc
import os


def open_descriptors() -> set[str]:
    """Their numbers, after what earlier tests have left to the garbage collector is closed: it would go meanwhile."""
    gc.collect()
    return set(os.listdir("/proc/self/fd"))
