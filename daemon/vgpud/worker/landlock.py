"""The files that a worker may open: the system's programs and libraries to read, devices, and its tenant's cache to
write; not the configuration with its tokens, no home folders, no other tenant's cache. Kernels before 5.13 have no
Landlock.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import stat
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# linux/landlock.h; the calls have the same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE = 444, 445
_VERSION, _PATH_BENEATH = 1, 1
_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 1, 1 << 2, 1 << 3, 1 << 5, 1 << 7, 1 << 8
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_RIGHTS_BY_VERSION = {1: (1 << 13) - 1, 2: _REFER, 3: _TRUNCATE}  # each adds to those before
_OF_FILES = _WRITE_FILE | _READ_FILE | _TRUNCATE  # a rule for what is no directory may give no others
_READ = _READ_FILE | _READ_DIR
_USE = _READ | _WRITE_FILE
_OWN = _USE | _TRUNCATE | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER

_READABLE = (
    *("/usr", "/lib", "/lib32", "/lib64", "/opt", "/proc", "/sys"),
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/nvidia", "/run/nvidia"),
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")  # and NVIDIA's; not /dev/shm


class Ruleset:
    """The set of files that a process may open: prepared before a client waits, enforced once its cache is known."""

    def __init__(self, readable: Iterable[str] = ()) -> None:
        """`readable`: besides the system's and Python's paths; those that do not exist are left out.

        Raises:
            OSError: the kernel cannot do it.
        """
        version = _call(_CREATE_RULESET, None, 0, _VERSION)
        self._handled = sum(rights for since, rights in _RIGHTS_BY_VERSION.items() if version >= since)
        attributes = struct.pack("=Q", self._handled)
        self._fd = _call(_CREATE_RULESET, attributes, len(attributes), 0)
        for path in {*_READABLE, sys.prefix, sys.base_prefix, *filter(None, sys.path), *readable}:
            _allow(self._fd, path, _READ & self._handled)
        _allow(self._fd, "/dev", _READ_DIR & self._handled)
        for path in (*_DEVICES, *glob.glob("/dev/nvidia*")):
            _allow(self._fd, path, _USE & self._handled)
        # cuInit of 580.159.04 opens something below /proc/self/task so, and answers 304 when it cannot.
        _allow(self._fd, "/proc/self", (_USE | _TRUNCATE) & self._handled)

    def enforce(self, cache: Path, restrict_threads: Callable[[int], int]) -> None:
        """From now on this process can open only the files listed at the top of this module. Call once.

        Args:
            cache: A folder that stays writable, if it exists.
            restrict_threads: Given the ruleset's descriptor, makes it hold for every thread; returns 0 or an errno.
        Raises:
            OSError: the kernel cannot do it, or a thread does not answer.
        """
        try:
            _allow(self._fd, os.fspath(cache), _OWN & self._handled)
            if code := restrict_threads(self._fd):
                raise OSError(code, "a thread does not answer" if code == errno.ETIMEDOUT else os.strerror(code))
        finally:
            os.close(self._fd)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _OF_FILES
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def _call(number: int, *arguments: int | bytes | None) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(libc.syscall(ctypes.c_long(number), *given))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(
            code, "no Landlock in this kernel" if code in (errno.ENOSYS, errno.EOPNOTSUPP) else os.strerror(code)
        )
    return result
