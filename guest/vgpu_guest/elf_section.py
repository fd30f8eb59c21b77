"""The section table of an ELF file: where symbols and device code are. Offsets in the file are checked."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from .elf import Data, ElfError, read_header

if TYPE_CHECKING:
    from collections.abc import Iterator

NULL, PROGBITS, SYMTAB, STRTAB, NOBITS, DYNSYM = 0, 1, 2, 3, 8, 11
RECORD = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_MANY = 0xFFFF  # SHN_XINDEX: the first section header holds the index of the names
_NAME_NBYTES = 256


class Section(NamedTuple):
    """A section header. Some sections have no bytes in the file (.bss, .nv.shared of cubins)."""

    name: str
    kind: int
    offset: int
    nbytes: int
    link: int
    info: int

    @property
    def has_bytes(self) -> bool:
        """Whether the section's bytes are in the file."""
        return self.kind not in (NULL, NOBITS)


def read_sections(data: Data) -> list[Section]:
    """All sections; none where the file has no table.

    Raises:
        ElfError: not a 64-bit little-endian ELF file, or the table or the names lie outside the file.
    """
    header = read_header(data)
    table, count, names = header.sections, header.section_count, header.names
    if table == 0:
        return []
    if header.section_nbytes != RECORD.size or table + RECORD.size > len(data):
        raise ElfError("the section table lies outside the file")
    first = RECORD.unpack_from(data, table)
    count = count or first[5]  # many sections: the first header holds the count
    names = first[6] if names == _MANY else names
    if count > (len(data) - table) // RECORD.size or names >= count:
        raise ElfError(f"truncated: {count} sections do not fit into the file")
    records = [RECORD.unpack_from(data, table + index * RECORD.size) for index in range(count)]
    strings = contents(data, records[names][4], records[names][5])
    return [Section(_name(strings, r[0]), r[1], r[4], r[5], r[6], r[7]) for r in records]


def contents(data: Data, offset: int, nbytes: int) -> bytes | memoryview:
    """Bytes at an offset that a table of the file gives; raises ElfError if they lie outside the file."""
    if offset > len(data) or nbytes > len(data) - offset:
        raise ElfError("truncated: a section lies outside the file")
    return data[offset : offset + nbytes]


def ranges(data: Data, names: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Begin and end of the sections with these names that lie in the file. Raises ElfError as read_sections does."""
    for section in read_sections(data):
        end = section.offset + section.nbytes
        if section.name in names and section.has_bytes and end <= len(data):
            yield section.offset, end


def _name(strings: bytes | memoryview, offset: int) -> str:
    return bytes(strings[offset : offset + _NAME_NBYTES]).split(b"\0", 1)[0].decode("latin-1")
