"""A VM's memory as vhost-user hands it over: regions of shared files, mapped here, used by checked ranges."""

from __future__ import annotations

import mmap
import os
import stat
import struct
from dataclasses import dataclass

from .violation import Violation

REGIONS_MAX = 8  # of VHOST_USER_SET_MEM_TABLE
_TABLE_HEAD = struct.Struct("<II")
_TABLE_ROW = struct.Struct("<QQQQ")  # guest address, nbytes, the VMM's own address, offset in the file


@dataclass(frozen=True, slots=True)
class Region:
    """`view` is the region's bytes; the first is at `guest_address` for the guest and at `vmm_address` for the VMM."""

    guest_address: int
    vmm_address: int
    view: memoryview

    @property
    def nbytes(self) -> int:
        """The region's size."""
        return len(self.view)


class GuestMemory:
    """All regions of one VM. A range that is not inside one region is a Violation.

    The VMM owns the file behind a region: if it truncates the file, an access ends this process (SIGBUS), which serves
    no other VM.
    """

    def __init__(self, regions: list[Region]) -> None:
        self._regions = sorted(regions, key=lambda region: region.guest_address)
        for lower, upper in zip(self._regions, self._regions[1:], strict=False):
            if lower.guest_address + lower.nbytes > upper.guest_address:
                raise Violation("memory regions overlap")

    def at_guest(self, address: int, nbytes: int) -> memoryview:
        """The bytes at a guest-physical address. Numbers are Python's: no sum wraps."""
        for region in self._regions:
            start = address - region.guest_address
            if start >= 0 and start + nbytes <= region.nbytes:
                return region.view[start : start + nbytes]
        raise Violation(f"{nbytes} bytes at guest address {address:#x} are not memory")

    def at_vmm(self, address: int, nbytes: int) -> memoryview:
        """The bytes at an address of the VMM's process. The VMM names the rings by such addresses."""
        for region in self._regions:
            start = address - region.vmm_address
            if start >= 0 and start + nbytes <= region.nbytes:
                return region.view[start : start + nbytes]
        raise Violation(f"{nbytes} bytes at the VMM's address {address:#x} are not memory")


def map_table(payload: bytes, fds: list[int]) -> GuestMemory:
    """Map what a SET_MEM_TABLE message holds. The caller must close the descriptors. Raises Violation."""
    if len(payload) < _TABLE_HEAD.size:
        raise Violation("a memory table without a head")
    count, _padding = _TABLE_HEAD.unpack_from(payload)
    if not 0 < count <= REGIONS_MAX or len(payload) != _TABLE_HEAD.size + count * _TABLE_ROW.size:
        raise Violation(f"a memory table of {count} regions in {len(payload)} bytes")
    if len(fds) != count:
        raise Violation(f"{len(fds)} descriptors for {count} memory regions")
    rows = _TABLE_ROW.iter_unpack(payload[_TABLE_HEAD.size :])
    return GuestMemory([_map(fd, *row) for fd, row in zip(fds, rows, strict=True)])


def _map(fd: int, guest_address: int, nbytes: int, vmm_address: int, offset: int) -> Region:
    if not nbytes or max(guest_address, vmm_address) + nbytes > 1 << 64:
        raise Violation(f"a memory region of {nbytes} bytes at {guest_address:#x}")
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or offset + nbytes > status.st_size:
        raise Violation(f"a memory region of {nbytes} bytes at {offset} in a file of {status.st_size}")
    try:
        # From the start of the file: mmap's offset must be a multiple of a huge page, which `offset` need not be.
        mapping = mmap.mmap(fd, offset + nbytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    except (OSError, ValueError, OverflowError) as error:
        raise Violation(f"a memory region of {nbytes} bytes cannot be mapped: {error}") from error
    return Region(guest_address, vmm_address, memoryview(mapping)[offset : offset + nbytes])
