"""Is the device behind libcuda simulated? For a real card, no kernel of torch may be replaced."""

from __future__ import annotations

import ctypes


def is_simulated() -> bool:
    """Ask the libcuda in this process, which torch has loaded and initialised."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    try:
        query = driver.vgpuDeviceIsSimulated
    except AttributeError:
        return False  # NVIDIA's libcuda
    query.argtypes, query.restype = [ctypes.c_int], ctypes.c_int
    return bool(query(0) == 1)
