"""Is the device behind libcuda simulated? With a real card nothing of torch may be replaced."""

from __future__ import annotations

import ctypes


def is_simulated() -> bool:
    """Ask the libcuda that this process has loaded; torch has initialised it."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    try:
        query = driver.vgpuDeviceIsSimulated
    except AttributeError:
        return False  # NVIDIA's own
    query.argtypes, query.restype = [ctypes.c_int], ctypes.c_int
    return bool(query(0) == 1)
