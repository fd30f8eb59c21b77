"""The privileges that a worker drops before it serves a client, so that a compromised worker can do little to
others."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from collections.abc import Callable
from pathlib import Path

from . import landlock, seccomp

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_LIBC = ctypes.CDLL(None, use_errno=True)  # created once, before the forks: each CDLL creates a class


def confine(allow: frozenset[str] = frozenset(), *, report: bool = False) -> int:
    """Drop privileges that no backend needs. Each step is as strict as the kernel allows; none can be undone.

    `allow` names system calls that stay allowed besides the usual ones; `report` creates a listener for refused
    calls: see seccomp.py. Returns the listener, or -1.
    """
    # When memory runs out, the kernel should kill a worker, which affects one client, instead of vgpud.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold a tenant's memory
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # workers share a user: this keeps one from tracing or reading another
    try:
        return seccomp.install(allow, report=report)
    except OSError as error:
        os.write(2, f"<4>this process has no seccomp filter: {error.strerror}\n".encode())
        return -1


def readable(libcuda: str) -> frozenset[str]:
    """The folders in which the driver and its libraries may be."""
    driver = [os.path.realpath(libcuda), libcuda] if os.path.isabs(libcuda) else []
    searched = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return frozenset([*filter(os.path.isabs, searched), *map(os.path.dirname, driver)])


class Files:
    """The files that a worker may open, prepared before a client waits and before the driver is started."""

    def __init__(self, libcuda: str) -> None:
        self._ruleset: landlock.Ruleset | None = None
        self._why = ""
        try:
            self._ruleset = landlock.Ruleset(readable(libcuda))
        except OSError as error:
            self._why = error.strerror or str(error)
        # NVIDIA's driver reads its cache's path when it starts, and opens the path when it compiles: by then this
        # descriptor is the tenant's folder. In the user's home, the default, one tenant could change what others run.
        self._place = os.open("/proc", os.O_PATH | os.O_CLOEXEC)  # where no file can be created
        os.environ["CUDA_CACHE_PATH"] = f"/proc/self/fd/{self._place}"

    def confine(self, cache_dir: str, restrict_threads: Callable[[int], int]) -> None:
        """Drop access to all files but the system's, the driver's, and the tenant's cache, which is created here.

        Without a writable cache a program starts more slowly, but does not fail.
        """
        cache = Path(cache_dir)
        with contextlib.suppress(OSError):
            cache.mkdir(parents=True, exist_ok=True, mode=0o700)
            (cache / "nvidia").mkdir(exist_ok=True, mode=cache.stat().st_mode & 0o777)
            folder = os.open(cache / "nvidia", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            os.dup2(folder, self._place, inheritable=False)
            os.close(folder)
        try:
            if self._ruleset is not None:
                self._ruleset.enforce(cache, restrict_threads)
        except OSError as error:
            self._ruleset, self._why = None, error.strerror or str(error)
        if self._ruleset is None:
            os.write(2, f"<4>this worker's files are not confined: {self._why}\n".encode())
