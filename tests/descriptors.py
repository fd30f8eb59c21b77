"""The descriptors that this process has open."""

from __future__ import annotations

import gc
import os


def open_descriptors() -> set[str]:
    """The numbers of the open descriptors. What earlier tests have left to the garbage collector is closed first,
    because it would disappear during the test.
    """
    gc.collect()
    return set(os.listdir("/proc/self/fd"))
