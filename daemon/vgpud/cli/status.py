"""Exit codes of vgpud and vgpu. `vgpu run` returns its program's own code, or 128 + the signal that ended it."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """0, 1 and 2 as every program uses them; 124 to 127 as timeout(1) and env(1) do; the rest from sysexits.h."""

    OK = 0
    FAILURE = 1
    USAGE = 2  # click's own
    UNAVAILABLE = 69  # no vgpud answers, or vgpud refuses
    SOFTWARE = 70  # vgpud could not start for a reason that is not the configuration
    ALREADY_RUNNING = 75
    CONFIG = 78
    TIMEOUT = 124  # vgpu run --timeout
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127
    SIGNAL_BASE = 128
