"""The configuration space of a PCI device that stands for a GPU in a virtual machine: identity, and nothing behind it.

Only what QEMU 7.2's x-pci-proxy-dev can carry: 256 bytes, 32-bit memory BARs, no interrupt. So the card's large BARs
are missing; BAR 0 (registers) has its size on every card, reads 0 and takes no write.

Source: PCI Local Bus 3.0 ch. 6, PCI Express Base 4.0 ch. 7.5.3 (offsets within the capability).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

CONFIG_NBYTES = 256
REGISTERS_NBYTES = 16 << 20  # BAR 0

_BAR0, _BAR_END = 0x10, 0x28
_EXPRESS, _VENDOR = 0x60, 0xA0  # offsets of the two capabilities
_EXPRESS_ID, _VENDOR_ID = 0x10, 0x09
_CAPABILITIES_LIST = 0x10  # bit of the status register
_CLASS_3D_CONTROLLER = 0x030200
VENDOR_TEXT = b"vGPUstub"  # distinguishes the stub from a card, for root in the guest


@dataclass(frozen=True, slots=True)
class PciIdentity:
    """A card's identity. `link`: greatest generation and width; zeros: no link is shown."""

    vendor: int
    device: int
    subsystem_vendor: int
    subsystem_device: int
    revision: int = 0xA1
    link: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        numbers = (self.vendor, self.device, self.subsystem_vendor, self.subsystem_device)
        if not all(0 <= number <= 0xFFFF for number in numbers) or not 0 <= self.revision <= 0xFF:
            raise ValueError("a PCI id has 16 bits, a revision 8")
        if not (0 <= self.link[0] <= 6 and 0 <= self.link[1] <= 32):
            raise ValueError("a PCIe link has a generation up to 6 and up to 32 lanes")


class ConfigSpace:
    """Registers as a guest reads and writes them. Little-endian; an access is within the 256 bytes."""

    def __init__(self, identity: PciIdentity) -> None:
        self._bytes = bytearray(CONFIG_NBYTES)
        self._writable = bytearray(CONFIG_NBYTES)  # bits that a write changes
        put, allow = self._put, self._allow
        put("<HHHH", 0x00, identity.vendor, identity.device, 0, _CAPABILITIES_LIST)
        put("<I", 0x08, _CLASS_3D_CONTROLLER << 8 | identity.revision)
        put("<HH", 0x2C, identity.subsystem_vendor, identity.subsystem_device)
        put("<B", 0x34, _EXPRESS)
        generation, width = identity.link
        link = width << 4 | generation
        # version 2, endpoint; 256-byte payloads, function-level reset; link as fast and wide as it can be
        put("<BBHIHHIHH", _EXPRESS, _EXPRESS_ID, _VENDOR, 2, 1 | 1 << 28, 0x2810, 0, link, 0, link)
        put("<I", _EXPRESS + 0x2C, (1 << generation) - 1 << 1)  # every speed up to that
        put("<BBBB8s", _VENDOR, _VENDOR_ID, 0, 4 + len(VENDOR_TEXT), 1, VENDOR_TEXT)
        allow("<H", 0x04, 0x0547)  # command: I/O, memory, master, parity, SERR, no INTx
        allow("<B", 0x0C, 0xFF)  # cache line
        allow("<I", _BAR0, ~(REGISTERS_NBYTES - 1) & 0xFFFFFFFF)
        allow("<B", 0x3C, 0xFF)  # interrupt line, for the guest's own use
        allow("<H", _EXPRESS + 0x08, 0x7FFF)  # device control; bit 15 starts a reset and reads 0
        allow("<H", _EXPRESS + 0x10, 0x0FFB)  # link control

    def _put(self, layout: str, at: int, *values: int | bytes) -> None:
        struct.pack_into(layout, self._bytes, at, *values)

    def _allow(self, layout: str, at: int, bits: int) -> None:
        struct.pack_into(layout, self._writable, at, bits)

    def read(self, at: int, nbytes: int) -> int:
        """A register of 1, 2 or 4 bytes."""
        return int.from_bytes(self._bytes[at : at + nbytes], "little")

    def write(self, at: int, nbytes: int, value: int) -> None:
        """Write a register; read-only bits stay."""
        for place, byte in enumerate((value & (1 << 8 * nbytes) - 1).to_bytes(nbytes, "little"), at):
            mask = self._writable[place]
            self._bytes[place] = self._bytes[place] & ~mask & 0xFF | byte & mask

    def reset(self) -> None:
        """Reset all registers to their values after power-on."""
        for place, mask in enumerate(self._writable):
            self._bytes[place] &= ~mask & 0xFF
        self._put("<H", _EXPRESS + 0x08, 0x2810)
