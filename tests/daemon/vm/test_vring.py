"""A ring whose VMM sends its messages in an unusual order, which is allowed."""

from __future__ import annotations

from vgpud.vm.guest_memory import GuestMemory, Region
from vgpud.vm.vring import Addresses, Vring

MEMORY = GuestMemory([Region(0, 0, memoryview(bytearray(1 << 16)))])


def test_a_new_size_wants_new_addresses():
    ring = Vring(guest_reads=False)
    ring.set_size(8)
    ring.place(MEMORY, Addresses(0, 4096, 8192))
    ring.set_size(1024)
    ring.kick_fd = 0
    ring.taken = 1023  # no such position in the ring of 8
    MEMORY.at_guest(8192 + 2, 2)[:] = (1024).to_bytes(2, "little")
    assert ring.take() is None
    assert not ring.running
