"""What a worker gives up before it meets its client, so that one that is taken over can do little to others."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from collections.abc import Collection
from pathlib import Path

from . import landlock, seccomp

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38


def confine(allow: Collection[str] = ()) -> None:
    """Give up privileges that no backend needs. Each step is as good as the kernel allows; none is undone.

    `allow` names system calls that are left to this process (see seccomp.py).
    """
    # When memory runs out the kernel should end a worker, which costs one client, not vgpud.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold a tenant's memory
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # workers share a user: this keeps one from tracing or reading another
    try:
        seccomp.install(allow)
    except OSError as error:
        os.write(2, f"<4>this process has no seccomp filter: {error.strerror}\n".encode())


class Files:
    """The files that a worker keeps: made ready while nobody waits for it."""

    def __init__(self, libcuda: str) -> None:
        driver = [os.path.realpath(libcuda), libcuda] if os.path.isabs(libcuda) else []
        searched = os.environ.get("LD_LIBRARY_PATH", "").split(":")
        readable = [*filter(os.path.isabs, searched), *map(os.path.dirname, driver)]
        self._ruleset: landlock.Ruleset | None = None
        self._why = ""
        try:
            self._ruleset = landlock.Ruleset(readable)
        except OSError as error:
            self._why = error.strerror or str(error)

    def confine(self, cache_dir: str | None, cache_nbytes: int) -> None:
        """Give up every file but the system's, those that hold the driver, and the tenant's cache, which is made here.

        NVIDIA's driver keeps what it compiles in the cache, too: in the user's home one tenant could change it for
        others. There it bounds itself, by `cache_nbytes`. Without a cache, as long as the tenant is not known, it keeps
        nothing.
        """
        cache = None if cache_dir is None else Path(cache_dir)
        if cache is None or cache_nbytes == 0:
            os.environ["CUDA_CACHE_DISABLE"] = "1"
        if cache is not None:
            with contextlib.suppress(OSError):  # a cache that cannot be written to is a slower start, no failure
                cache.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.environ["CUDA_CACHE_PATH"] = str(cache / "nvidia")
            os.environ["CUDA_CACHE_MAXSIZE"] = str(min(cache_nbytes, 2**32))  # its documentation's highest value
        try:
            if self._ruleset is not None:
                self._ruleset.enforce(cache)
        except OSError as error:
            self._ruleset, self._why = None, error.strerror or str(error)
        if self._ruleset is None:
            os.write(2, f"<4>this worker's files are not confined: {self._why}\n".encode())


def load_driver(libcuda: str) -> None:
    """Have the driver's library mapped and linked before a client waits for that. It is not started (cuInit).

    That it cannot be is no error yet: it is told to the client that needs it. Threads that it started already would
    not be confined with their process.
    """
    with contextlib.suppress(OSError):
        ctypes.CDLL(libcuda)
    if len(os.listdir("/proc/self/task")) > 1:
        os.write(2, b"<4>the driver starts threads when it is loaded: their files are not confined\n")
