"""A split virtqueue, the device's side. The guest may write to it at any time: each word is copied once, then checked.

Source: virtio 1.2, ch. 2.7. The order of our loads and stores is x86's own (a load is not moved before an earlier load,
a store not before an earlier load or store), which is all that is needed as long as the guest is always notified: the
flag that asks for no notification is a hint, and reading it after publishing would need a fence.
"""

from __future__ import annotations

import contextlib
import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from .violation import Violation

if TYPE_CHECKING:
    from .guest_memory import GuestMemory

SIZE_MAX = 1024  # QEMU's VIRTQUEUE_MAX_SIZE; the vsock device's rings have 128
_NEXT, _WRITE, _INDIRECT = 1, 2, 4
_DESCRIPTOR = struct.Struct("<QIHH")  # address, nbytes, flags, next
_USED = struct.Struct("<II")  # head, nbytes written
_ONE = (1).to_bytes(8, "little")
_USED_RING = 4  # bytes before the first element, in both rings


class Addresses(NamedTuple):
    """The addresses of the three parts, in the VMM's address space."""

    descriptors: int
    used: int
    available: int


class Chain(NamedTuple):
    """One guest buffer: the head to pass to `complete`, and the parts in order, all of one direction."""

    head: int
    parts: list[memoryview]


class Vring:
    """One ring. It is running once the VMM has sent its size, its addresses and a descriptor for kicks."""

    def __init__(self, *, guest_reads: bool) -> None:
        self._wanted = _WRITE if guest_reads else 0  # the direction every descriptor must have
        self._size = 0
        self._memory: GuestMemory | None = None
        self._descriptors = self._available = self._used_index = self._used = memoryview(b"")
        self.addresses: Addresses | None = None
        self.taken = 0  # free-running, modulo 2**16: chains taken so far
        self.kick_fd: int | None = None
        self.call_fd: int | None = None
        self.enabled = True  # the state for a VMM that never sends SET_VRING_ENABLE

    @property
    def running(self) -> bool:
        """Whether chains may be taken."""
        return self.kick_fd is not None and self._memory is not None and self.enabled

    def set_size(self, size: int) -> None:
        """Set the number of descriptors. Raises Violation."""
        if not 0 < size <= SIZE_MAX or size & (size - 1):
            raise Violation(f"a ring of {size} descriptors")
        if self._memory is not None and self.kick_fd is not None:
            raise Violation("a running ring changes its size")
        if size != self._size:
            self.place(None, None)  # the views have the old size
        self._size = size

    def place(self, memory: GuestMemory | None, addresses: Addresses | None) -> None:
        """Find the ring's parts in memory, again when memory has changed. Raises Violation."""
        self.addresses, self._memory = addresses, None
        if memory is None or addresses is None:
            self._descriptors = self._available = self._used_index = self._used = memoryview(b"")
            return
        if not self._size:
            raise Violation("a ring has addresses before its size")
        if addresses.descriptors % 16 or addresses.used % 4 or addresses.available % 2:
            raise Violation("a ring lies askew")
        size = self._size
        self._descriptors = memory.at_vmm(addresses.descriptors, _DESCRIPTOR.size * size)
        self._available = memory.at_vmm(addresses.available, _USED_RING + 2 * size).cast("H")
        used = memory.at_vmm(addresses.used, _USED_RING + _USED.size * size)
        self._used_index, self._used = used[:_USED_RING].cast("H"), used[_USED_RING:]
        self._memory = memory

    def take(self) -> Chain | None:
        """The next buffer the guest has made available; None if there is none. Raises Violation."""
        if not self.running:
            return None
        waiting = (self._available[1] - self.taken) & 0xFFFF
        if not waiting:
            return None
        if waiting > self._size:
            raise Violation(f"{waiting} buffers available in a ring of {self._size}")
        head = self._available[2 + self.taken % self._size]
        chain = self._chain(head)
        self.taken = (self.taken + 1) & 0xFFFF
        return chain

    def put_back(self) -> None:
        """Undo the last take(): the chain was not used and is taken again next time."""
        self.taken = (self.taken - 1) & 0xFFFF

    def complete(self, head: int, nbytes: int) -> None:
        """Give a buffer back, `nbytes` of it written. The guest is told at the next `notify`."""
        index = self._used_index[1]
        _USED.pack_into(self._used, _USED.size * (index % self._size), head, nbytes)
        self._used_index[1] = (index + 1) & 0xFFFF

    def notify(self) -> None:
        """Interrupt the guest."""
        if self.call_fd is not None:
            with contextlib.suppress(BlockingIOError):  # the counter is full: the guest has ignored 2**64 interrupts
                os.write(self.call_fd, _ONE)

    def drain_kick(self) -> None:
        """Consume a kick."""
        if self.kick_fd is not None:
            with contextlib.suppress(BlockingIOError):
                os.read(self.kick_fd, 8)

    def _chain(self, head: int) -> Chain:
        memory, size = self._memory, self._size
        assert memory is not None
        parts: list[memoryview] = []
        index = head
        while True:
            if index >= size:
                raise Violation(f"descriptor {index} in a ring of {size}")
            if len(parts) == size:
                raise Violation("a chain of descriptors without an end")
            address, nbytes, flags, following = _DESCRIPTOR.unpack_from(self._descriptors, _DESCRIPTOR.size * index)
            if flags & _INDIRECT:
                raise Violation("an indirect descriptor, which was not offered")
            if flags & _WRITE != self._wanted:
                raise Violation("a descriptor of the wrong direction")
            if not nbytes:
                raise Violation("an empty descriptor")
            parts.append(memory.at_guest(address, nbytes))
            if not flags & _NEXT:
                return Chain(head, parts)
            index = following
