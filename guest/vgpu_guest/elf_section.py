"""The section table of an ELF file: where symbols and device code lie. Every offset comes from the file."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from .elf import ElfError

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator

_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOBITS = 8
_NAME_NBYTES = 256

# name, type, flags, address, offset, size, link, info, alignment, entry size (elf(5), Elf64_Shdr)
Header = tuple[int, int, int, int, int, int, int, int, int, int]


def read_headers(data: mmap.mmap) -> list[Header]:
    """All headers; none where the file has no section table.

    Raises:
        ElfError: not a 64-bit little-endian ELF file.
        struct.error: the table lies outside the file.
    """
    if data[:6] != b"\x7fELF\x02\x01":
        raise ElfError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", data, 40)
    entry_nbytes, count = struct.unpack_from("<HH", data, 58)
    if not table or entry_nbytes != _SECTION.size:
        return []
    if not count:  # many sections: the number stands in the first header
        (count,) = struct.unpack_from("<Q", data, table + 32)
        if count > (len(data) - table) // entry_nbytes:
            raise ElfError("more sections than the file can hold")
    return [_SECTION.unpack_from(data, table + i * entry_nbytes) for i in range(count)]


def ranges(data: mmap.mmap, names: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Begin and end of the sections of these names that lie in the file. Raises as read_headers."""
    headers = read_headers(data)
    (index,) = struct.unpack_from("<H", data, 62)
    if index == 0xFFFF and headers:
        index = headers[0][6]
    if index >= len(headers):
        return
    strings, end = headers[index][4], min(headers[index][4] + headers[index][5], len(data))
    for header in headers:
        at = strings + header[0]
        stop = data.find(b"\0", at, min(end, at + _NAME_NBYTES)) if at < end else -1
        if stop < 0 or header[1] == _NOBITS or data[at:stop].decode("latin-1") not in names:
            continue
        if header[4] + header[5] <= len(data):
            yield header[4], header[4] + header[5]
