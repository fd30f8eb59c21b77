"""Just enough ELF64: find sections in cubins, objects and libraries, and write the image that cuLink gives out."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from vgpusim.image.error import INVALID_IMAGE, ImageError

MAGIC = b"\x7fELF"
EM_CUDA = 190

_HEADER = struct.Struct("<4s5B7xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SHT_PROGBITS, _SHT_STRTAB, _SHT_NOBITS = 1, 3, 8
_SHN_XINDEX = 0xFFFF
_STRINGS_SECTION = ".shstrtab"
_CUDA_ABI_VERSION = 8  # of CUDA 13's cubins; there the architecture is in bits 8..15 of e_flags, before in 0..7
_CUDA_OS_ABI = 0x41
_CUDA_FLAGS = 0x06000004


@dataclass(frozen=True)
class Section:
    """A section as its header states it: not all have their bytes in the file (cubins' .nv.shared, for one)."""

    name: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class ElfFile:
    """An ELF64 file's sections."""

    machine: int
    abi_version: int
    flags: int
    sections: tuple[Section, ...]
    data: memoryview

    @property
    def sm(self) -> int:
        """The architecture of a cubin, as 90 for sm_90."""
        return (self.flags >> 8 if self.abi_version >= _CUDA_ABI_VERSION else self.flags) & 0xFF

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return next((section for section in self.sections if section.name == name), None)

    def contents(self, section: Section) -> memoryview:
        """A section's bytes; raises ImageError(INVALID_IMAGE) if they lie outside the file."""
        return _slice(self.data, section.offset, section.nbytes)


def is_elf(data: memoryview) -> bool:
    """Whether an ELF file begins here."""
    return data[:4] == MAGIC


def read(data: memoryview) -> ElfFile:
    """Parse the section table.

    Raises:
        ImageError: INVALID_IMAGE if the file is not little-endian ELF64, or a table lies outside it.
    """
    if len(data) < _HEADER.size:
        raise ImageError(INVALID_IMAGE, f"ELF: truncated header ({len(data)} bytes)")
    magic, width, order, _, _, abi_version, _, machine, _, _, _, table, flags, _, _, _, entry_nbytes, count, names = (
        _HEADER.unpack_from(data)
    )
    if magic != MAGIC or width != 2 or order != 1:
        raise ImageError(INVALID_IMAGE, "ELF: not a little-endian 64-bit file")
    if table == 0:
        return ElfFile(machine, abi_version, flags, (), data)
    if entry_nbytes != _SECTION.size or table + _SECTION.size > len(data):
        raise ImageError(INVALID_IMAGE, "ELF: the section table lies outside the file")
    first = _SECTION.unpack_from(data, table)
    count = count or first[5]  # many sections: the count stands in the first one
    names = first[6] if names == _SHN_XINDEX else names
    if count > (len(data) - table) // _SECTION.size or names >= count:
        raise ImageError(INVALID_IMAGE, f"ELF: truncated: {count} sections do not fit into the file")
    headers = [_SECTION.unpack_from(data, table + index * _SECTION.size) for index in range(count)]
    strings = _slice(data, headers[names][4], headers[names][5])
    sections = tuple(
        Section(_string(strings, header[0]), header[4], header[5])
        for header in headers
        if header[1] not in (0, _SHT_NOBITS)
    )
    return ElfFile(machine, abi_version, flags, sections, data)


def write_cubin(sm: int, contents: Mapping[str, bytes]) -> bytes:
    """A file of machine EM_CUDA with these sections.

    The section table comes last and there are no program headers, so that a client that computes the size from the
    tables finds all of it.
    """
    strings = bytearray(b"\0")
    body = bytearray(_HEADER.size)
    table = bytearray(_SECTION.size)
    for name, data in [*contents.items(), (_STRINGS_SECTION, None)]:
        name_at = len(strings)
        strings += name.encode() + b"\0"
        kind, content = (_SHT_STRTAB, bytes(strings)) if data is None else (_SHT_PROGBITS, data)
        body += bytes(-len(body) % 16)
        table += _SECTION.pack(name_at, kind, 0, 0, len(body), len(content), 0, 0, 16, 0)
        body += content
    body += bytes(-len(body) % 16)
    count = len(table) // _SECTION.size
    _HEADER.pack_into(
        body, 0, MAGIC, 2, 1, 1, _CUDA_OS_ABI, _CUDA_ABI_VERSION, 2, EM_CUDA, 1, 0, 0, len(body), _CUDA_FLAGS | sm << 8,
        _HEADER.size, 0, 0, _SECTION.size, count, count - 1,
    )  # fmt: skip
    return bytes(body + table)


def _slice(data: memoryview, offset: int, nbytes: int) -> memoryview:
    if offset > len(data) or nbytes > len(data) - offset:
        raise ImageError(INVALID_IMAGE, "ELF: truncated: a section lies outside the file")
    return data[offset : offset + nbytes]


def _string(strings: memoryview, offset: int) -> str:
    """A name of the string table; at most 256 bytes of it."""
    return bytes(strings[offset : offset + 256]).split(b"\0", 1)[0].decode("latin-1")
