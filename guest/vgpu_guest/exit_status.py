"""Exit codes of vgpud and vgpu. `vgpu run` returns its program's own code, or 128 + the signal that ended it; `vgpu
doctor` has codes of its own (docs/doctor.md)."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """0, 1 and 2 as every program uses them; 124 to 127 as timeout(1) and env(1) do; the rest from sysexits.h."""

    OK = 0
    FAILURE = 1
    USAGE = 2  # click's own
    UNAVAILABLE = 69
    SOFTWARE = 70
    IOERR = 74
    ALREADY_RUNNING = 75
    CONFIG = 78
    TIMEOUT = 124
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127
    SIGNAL_BASE = 128


MEANINGS = {
    ExitStatus.OK: "Done.",
    ExitStatus.FAILURE: "Not done, or not wholly; a line says why.",
    ExitStatus.USAGE: "Wrong use.",
    ExitStatus.UNAVAILABLE: "No vgpud answers at the endpoint or the admin socket, or it refuses.",
    ExitStatus.SOFTWARE: "vgpud cannot start for a reason that is not its configuration; a part of vgpu is missing.",
    ExitStatus.IOERR: "What was to be printed could not be written.",
    ExitStatus.ALREADY_RUNNING: "vgpud cannot start because one runs already.",
    ExitStatus.CONFIG: "vgpud cannot start with its configuration.",
    ExitStatus.TIMEOUT: "vgpu run --timeout ended the program.",
    ExitStatus.NOT_EXECUTABLE: "vgpu run cannot execute the program.",
    ExitStatus.NOT_FOUND: "vgpu run cannot find the program.",
    ExitStatus.SIGNAL_BASE: "Plus the number of the signal that ended vgpu run's program.",
}
"""The one table: of the manual page and of docs/operations.md."""
