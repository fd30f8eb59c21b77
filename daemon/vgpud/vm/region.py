"""Memory that one VM shares with this host (wire.md, "Regions"): a file that QEMU maps as an ivshmem device.

vgpud divides it among the VM's sessions, in equal ranges, each cleared before it is given out and again when its
session has ended. The ranges keep the sessions of one VM out of each other's way; they are not a boundary, since the
VM's root maps the whole device. So a region belongs to one VM, and VMs never share one.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import grp
import os
import secrets
import stat
import struct
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config_tables import VmConfig

MIB = 1 << 20
PAGE_NBYTES = 4096
HEADER_NBYTES = PAGE_NBYTES  # no range includes the first page
_HEADER = struct.Struct("<8s16sQ")  # struct vgw_region_header
_MAGIC = b"VGPUREGN"
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # FALLOC_FL_*
_ZEROS_NBYTES = 4 * MIB
_NEW_FILE_MODE = 0o660
_LOCK_TIMEOUT_S = 3.0


class RegionError(Exception):
    """The memory cannot be used; the text is for the operator."""


@dataclass(frozen=True, slots=True)
class Range:
    """One session's part, in bytes from the region's beginning; whole pages."""

    offset: int
    nbytes: int


class Region:
    """An open region, locked by this process. All methods run on the event loop."""

    def __init__(self, fd: int, nbytes: int, sessions: int, *, cookie: bytes | None = None) -> None:
        """Takes ownership of `fd`. Clears the region unless `cookie`, the region's cookie in the previous vgpud, is
        given. Raises OSError."""
        self.fd = fd
        self.nbytes = nbytes
        self.cookie = cookie or secrets.token_bytes(16)
        each = (nbytes - HEADER_NBYTES) // sessions // PAGE_NBYTES * PAGE_NBYTES
        # Used in turn: a client that has not noticed its session's end yet rarely shares the range with a new session.
        self._free = deque(Range(HEADER_NBYTES + i * each, each) for i in range(sessions))
        self._clearing: set[asyncio.Task[None]] = set()
        if cookie is not None:
            return
        clear(fd, 0, nbytes)
        os.pwrite(fd, _HEADER.pack(_MAGIC, self.cookie, nbytes), 0)

    @classmethod
    def open(cls, vm: VmConfig) -> Region:
        """The region of a VM's configuration; a missing file is created. Raises RegionError."""
        assert vm.ivshmem is not None
        nbytes = vm.ivshmem_mib * MIB
        fd = -1
        try:
            fd = _open_file(vm.ivshmem, vm.group)
            _take_alone(fd, nbytes)
            return cls(fd, nbytes, vm.ivshmem_ranges)
        except (OSError, RegionError) as error:
            if fd >= 0:
                os.close(fd)
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise RegionError(f"vm {vm.name}: ivshmem = {vm.ivshmem!r}: {why}") from error

    @property
    def fields(self) -> dict[str, object]:
        """The region's fields of a welcome message."""
        return {"cookie": self.cookie, "nbytes": self.nbytes}

    @property
    def free_count(self) -> int:
        """Ranges that can be given out now."""
        return len(self._free)

    def adopt(self, taken: Range) -> bool:
        """Mark a range as used by a session of the previous vgpud. False: the region is now divided differently."""
        if taken not in self._free:
            return False
        self._free.remove(taken)
        return True

    async def take(self) -> Range | None:
        """A range full of zeros; None when all are in use."""
        if not self._free:
            return None
        taken = self._free.popleft()
        # Cleared again, although it was cleared when it was returned: the VM may have written to it since. The waiting
        # task can be cancelled, the thread cannot: the range stays unusable until the thread has finished.
        clearing = asyncio.get_running_loop().create_task(asyncio.to_thread(clear, self.fd, taken.offset, taken.nbytes))
        self._clearing.add(clearing)
        clearing.add_done_callback(self._clearing.discard)
        try:
            await asyncio.shield(clearing)
        except BaseException:
            clearing.add_done_callback(lambda done: self._free_after(done, taken))  # soon, if it has failed
            raise
        return taken

    def _free_after(self, clearing: asyncio.Task[None], taken: Range) -> None:
        if not clearing.cancelled():
            clearing.exception()  # the next user clears the range again, and gets the error
        self._free.append(taken)

    def give_back(self, taken: Range) -> None:
        """Return the range of an ended session, whose worker is gone. The range is cleared before it is used again."""
        task = asyncio.get_running_loop().create_task(self._clear_and_free(taken))
        self._clearing.add(task)
        task.add_done_callback(self._clearing.discard)

    async def _clear_and_free(self, taken: Range) -> None:
        try:
            await asyncio.to_thread(clear, self.fd, taken.offset, taken.nbytes)
        finally:
            self._free.append(taken)

    async def close(self) -> None:
        """Wait until all clearing has finished, and close the file, which stays for the VM."""
        await asyncio.gather(*self._clearing, return_exceptions=True)
        os.close(self.fd)


def clear(fd: int, offset: int, nbytes: int) -> None:
    """Make these bytes zero and give their memory back to the host. Raises OSError."""
    try:
        _fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, offset, nbytes)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        zeros = memoryview(bytes(min(nbytes, _ZEROS_NBYTES)))
        while nbytes:
            written = os.pwrite(fd, zeros[: min(nbytes, len(zeros))], offset)
            offset, nbytes = offset + written, nbytes - written


def _fallocate(fd: int, mode: int, offset: int, nbytes: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(nbytes)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _open_file(path: str, group: str | None) -> int:
    """Open the file, or create it for vgpud's user and the VMM's group. A symbolic link is not followed."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    if group is not None:
        try:
            os.fchown(fd, -1, grp.getgrnam(group).gr_gid)
        except KeyError:
            os.close(fd)
            os.unlink(path)
            raise RegionError(f"there is no group {group!r}") from None
        os.fchmod(fd, _NEW_FILE_MODE)
    return fd


def _take_alone(fd: int, nbytes: int) -> None:
    """Lock the file against another vgpud, and check or set its size. Raises RegionError or OSError."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise RegionError("not a regular file")
    deadline = time.monotonic() + _LOCK_TIMEOUT_S  # workers of a dead vgpud hold the lock until they notice
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise RegionError("another vgpud uses it") from None
            time.sleep(0.05)
    room = os.fstatvfs(fd)
    free_nbytes = room.f_bavail * room.f_frsize + found.st_blocks * 512
    if free_nbytes < nbytes:  # a page that cannot be allocated would end QEMU, not only a session
        raise RegionError(f"its file system has room for {free_nbytes // MIB} MiB, and ivshmem_mib = {nbytes // MIB}")
    if found.st_size == 0:
        os.ftruncate(fd, nbytes)
    elif found.st_size != nbytes:
        raise RegionError(f"it has {found.st_size} bytes, and ivshmem_mib = {nbytes // MIB} wants {nbytes}")
