"""Following a service's start: which processes it starts, which CUDA libraries they map, when they end."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from . import process
from .place import PlaceError
from .subject import SubjectError, of_service

if TYPE_CHECKING:
    from collections.abc import Callable

    from .subject import Subject

_POLL_S = 0.25
SETTLED_S = 5.0  # a running service is examined after this time without events
_NAMES = ("libcuda.so", "libcudart.so", "libnvidia-ml.so", "libggml-cuda.so", "libcublas.so", "libvgpu-notice.so")


def follow(name: str, root: str, timeout_s: float, tell: Callable[[str], None]) -> None:
    """Report events until the service has used CUDA, has been quiet for a while, or the time is up.

    Raises:
        SubjectError: there is no such service.
    """
    start = deadline = time.monotonic()
    deadline += timeout_s
    known: set[int] = set()
    quiet_since = 0.0
    _tell_start(of_service(name, root), tell)
    seen: set[tuple[int, str]] = set()
    while time.monotonic() < deadline:
        time.sleep(_POLL_S)
        try:
            subject = of_service(name, root)
        except SubjectError:  # the service ended between two polls
            continue
        now = time.monotonic()
        fresh = [pid for pid in subject.pids if pid not in known]
        for pid in fresh:
            tell(f"{now - start:6.1f} s  process {pid} started: {_program(pid)}")
            known.add(pid)
            quiet_since = now
        for pid in [pid for pid in known if not os.path.exists(f"/proc/{pid}")]:
            tell(f"{now - start:6.1f} s  process {pid} ended")
            known.discard(pid)
            quiet_since = now
        for pid in subject.pids:
            for file in _cuda_libraries(pid):
                if (pid, file) not in seen:
                    seen.add((pid, file))
                    tell(f"{now - start:6.1f} s  process {pid} maps {file}")
                    quiet_since = now
        if subject.pids and quiet_since and now - quiet_since > SETTLED_S:
            return
    tell(f"{timeout_s:6.1f} s  time is up")


def _tell_start(subject: Subject, tell: Callable[[str], None]) -> None:
    if subject.pids:
        tell(f"{subject.label} runs as {', '.join(map(str, subject.pids))}: waiting for what it does, or its restart")
    else:
        tell(f"waiting for {subject.label} to start")


def _program(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return "gone already"


def _cuda_libraries(pid: int) -> list[str]:
    try:
        found = process.inspect(pid)
    except PlaceError:
        return []
    return [file for file in found.libraries if os.path.basename(file).startswith(_NAMES)]
