"""NVIDIA's Multi-Process Service, where the configuration says that the administrator has started it: workers are
clients of its server, and kernels of different workers run beside each other instead of in time slices.
"""

from __future__ import annotations

import os
import stat
import subprocess

PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
_CONTROL = "nvidia-cuda-mps-control"
_TIMEOUT_S = 10.0


class MpsError(Exception):
    """No control daemon answers, or it may be another user's; the text says what to do."""


def _check_owner(pipe_directory: str) -> None:
    """Whoever owns the folder can replace the control daemon's pipes, and so receive what workers send it. Raises
    MpsError."""
    try:
        found = os.lstat(pipe_directory)
    except OSError:
        return  # no control daemon will answer there
    if not stat.S_ISDIR(found.st_mode):
        raise MpsError("it is no folder (a link is not followed)")
    if found.st_uid not in (0, os.geteuid()):
        raise MpsError(f"it belongs to user {found.st_uid}, neither root nor vgpud's user ({os.geteuid()})")


def check(pipe_directory: str) -> None:
    """Ask the control daemon that the administrator has started. Raises MpsError."""
    _check_owner(pipe_directory)
    mend = f"`{PIPE_DIRECTORY}={pipe_directory} {_CONTROL} -d`, as vgpud's user, starts one"
    try:
        done = subprocess.run(
            ["/usr/bin/env", f"{PIPE_DIRECTORY}={pipe_directory}", _CONTROL],
            input="get_default_active_thread_percentage\n",
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MpsError(f"{_CONTROL} does not answer within {_TIMEOUT_S:.0f} s: {mend}") from error
    try:
        float(done.stdout)
    except ValueError as error:
        why = (done.stderr.strip() or done.stdout.strip() or f"exit {done.returncode}").splitlines()[-1]
        raise MpsError(f"no control daemon answers there ({why}): {mend}") from error


def share_variables(percentage: int | None) -> tuple[tuple[str, str], ...]:
    """Of a worker for a tenant whose share has `mps_active_thread_percentage`."""
    return () if percentage is None else (("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", str(percentage)),)
