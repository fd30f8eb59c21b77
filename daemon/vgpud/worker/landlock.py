"""The files that a worker may open: the system's programs and libraries to read, devices, and its tenant's cache to
write; not the configuration with its tokens, no home folders, no other tenant's cache. Kernels before 5.13 have no
Landlock.

Where the kernel has scopes, a worker can also signal no process, and connect to no abstract unix socket, but its own.
The namespaces of cell.py and the system calls of seccomp.py refuse both, too: scopes hold where they fail.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import glob
import os
import stat
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..devices.mps import PIPE_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Callable

# linux/landlock.h; the calls have the same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE = 444, 445
_VERSION, _ERRATA, _PATH_BENEATH = 1, 2, 1
_SCOPE_ABSTRACT_UNIX, _SCOPE_SIGNAL = 1 << 0, 1 << 1
_SCOPES_SINCE = 6  # Linux 6.12
# Without this correction (of 6.15, and of stable kernels before) a thread cannot signal another one of its process that
# has called landlock_restrict_self for itself, as each thread of a worker does.
_THREADS_MAY_SIGNAL = 1 << 1
_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 1, 1 << 2, 1 << 3, 1 << 5, 1 << 7, 1 << 8
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_RIGHTS_BY_VERSION = {1: (1 << 13) - 1, 2: _REFER, 3: _TRUNCATE}  # each adds to those before
_OF_FILES = _WRITE_FILE | _READ_FILE | _TRUNCATE  # the only rights that a rule for a file may grant
_READ = _READ_FILE | _READ_DIR
_USE = _READ | _WRITE_FILE
_OWN = _USE | _TRUNCATE | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER

_READABLE = (
    *("/usr", "/lib", "/lib32", "/lib64", "/opt", "/sys"),
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/nvidia", "/run/nvidia"),
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")  # and NVIDIA's; not /dev/shm


class Ruleset:
    """The set of files that a process may open: prepared before a client waits, enforced once its cache is known."""

    def __init__(self, readable: frozenset[str] = frozenset()) -> None:
        """`readable`: paths besides the system's and Python's; paths that do not exist are skipped.

        Raises:
            OSError: the kernel has no Landlock.
        """
        self._handled, known = rules(readable)
        scoped, _missing = scopes()
        # handled_access_fs, handled_access_net, scoped: a kernel without scopes accepts zeros there
        attributes = struct.pack("=QQQ", self._handled, 0, scoped)
        self._fd = _call(_CREATE_RULESET, attributes, len(attributes), 0)
        for fd, rights in known:
            _add(self._fd, fd, rights)
            os.close(fd)
        rules.cache_clear()
        # Opened in this process, as the launcher may have another /proc.
        _allow(self._fd, "/proc", _READ & self._handled)
        # cuInit of 580.159.04 opens a file below /proc/self/task for writing, and returns 304 when it cannot.
        _allow(self._fd, "/proc/self", (_USE | _TRUNCATE) & self._handled)

    def enforce(self, cache: Path, restrict_threads: Callable[[int], int]) -> None:
        """From now on this process can open only the files listed at the top of this module. Call once.

        Args:
            cache: A folder that stays writable, if it exists.
            restrict_threads: Given the ruleset's descriptor, applies it to every thread; returns 0 or an errno.
        Raises:
            OSError: the kernel cannot do it, or a thread does not answer.
        """
        try:
            _allow(self._fd, os.fspath(cache), _OWN & self._handled)
            if code := restrict_threads(self._fd):
                raise OSError(code, "a thread does not answer" if code == errno.ETIMEDOUT else os.strerror(code))
        finally:
            os.close(self._fd)


_LIBC = ctypes.CDLL(None, use_errno=True)  # created once, before the forks: each CDLL creates a class


@functools.cache
def scopes() -> tuple[int, tuple[str, ...]]:
    """The scopes of a worker on this kernel, as Landlock's bits, and what is missing, each with its reason."""
    try:
        version = _call(_CREATE_RULESET, None, 0, _VERSION)
    except OSError as error:
        return 0, (f"Landlock ({error.strerror})",)
    if version < _SCOPES_SINCE:
        why = f"Landlock {version} of this kernel; {_SCOPES_SINCE} has it"
        return 0, (f"Landlock's signal scope ({why})", f"Landlock's abstract socket scope ({why})")
    try:
        corrected = _call(_CREATE_RULESET, None, 0, _ERRATA)
    except OSError:
        corrected = 0
    if not corrected & _THREADS_MAY_SIGNAL:
        why = "on this kernel it also refuses signals between a process's own threads; Linux 6.15 does not"
        return _SCOPE_ABSTRACT_UNIX, (f"Landlock's signal scope ({why})",)
    return _SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL, ()


@functools.cache  # the launcher calls it, for all of its workers
def rules(readable: frozenset[str]) -> tuple[int, list[tuple[int, int]]]:
    """The rights that this kernel knows, and every worker's rules: descriptors, which the caller owns, with rights.

    Raises:
        OSError: the kernel cannot do it.
    """
    version = _call(_CREATE_RULESET, None, 0, _VERSION)
    handled = sum(rights for since, rights in _RIGHTS_BY_VERSION.items() if version >= since)
    wanted = dict.fromkeys({*_READABLE, sys.prefix, sys.base_prefix, *filter(None, sys.path), *readable}, _READ)
    wanted |= {"/dev": _READ_DIR} | dict.fromkeys((*_DEVICES, *glob.glob("/dev/nvidia*")), _USE)
    if pipes := os.environ.get(PIPE_DIRECTORY):  # of MPS, whose server and clients share memory in /dev/shm
        wanted |= {pipes: _OWN, "/dev/shm": _OWN}  # noqa: S108
    opened = []
    for path, rights in wanted.items():
        with contextlib.suppress(OSError):
            opened.append((os.open(path, os.O_PATH | os.O_CLOEXEC), rights & handled))
    return handled, opened


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        _add(ruleset, fd, rights)
    finally:
        os.close(fd)


def _add(ruleset: int, fd: int, rights: int) -> None:
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        rights &= _OF_FILES
    _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)


def _call(number: int, *arguments: int | bytes | None) -> int:
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(_LIBC.syscall(ctypes.c_long(number), *given))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(
            code, "no Landlock in this kernel" if code in (errno.ENOSYS, errno.EOPNOTSUPP) else os.strerror(code)
        )
    return result
