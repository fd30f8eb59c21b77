"""Sections of cubins, objects and libraries, by vgpu_guest's reader; and the image that cuLink gives out."""

from collections.abc import Mapping
from dataclasses import dataclass

from vgpu_guest.elf import HEADER, MAGIC, ElfError, read_header
from vgpu_guest.elf_section import PROGBITS, RECORD, STRTAB, Section, contents, read_sections

from vgpusim.image.error import INVALID_IMAGE, ImageError

EM_CUDA = 190

_STRINGS_SECTION = ".shstrtab"
_CUDA_ABI_VERSION = 8  # of CUDA 13's cubins; there the architecture is in bits 8..15 of e_flags, before in 0..7
_CUDA_OS_ABI = 0x41
_CUDA_FLAGS = 0x06000004


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
        try:
            return memoryview(contents(self.data, section.offset, section.nbytes))
        except ElfError as error:
            raise ImageError(INVALID_IMAGE, f"ELF: {error}") from error


def is_elf(data: memoryview) -> bool:
    """Whether an ELF file begins here."""
    return data[:4] == MAGIC


def read(data: memoryview) -> ElfFile:
    """Parse the section table.

    Raises:
        ImageError: INVALID_IMAGE if the file is not little-endian ELF64, or a table lies outside it.
    """
    try:
        header = read_header(data)
        sections = tuple(section for section in read_sections(data) if section.has_bytes)
    except ElfError as error:
        raise ImageError(INVALID_IMAGE, f"ELF: {error}") from error
    return ElfFile(header.machine, header.abi_version, header.flags, sections, data)


def write_cubin(sm: int, sections: Mapping[str, bytes]) -> bytes:
    """A file of machine EM_CUDA with these sections.

    The section table comes last and there are no program headers, so that a client that computes the size from the
    tables finds all of it.
    """
    strings = bytearray(b"\0")
    body = bytearray(HEADER.size)
    table = bytearray(RECORD.size)
    for name, data in [*sections.items(), (_STRINGS_SECTION, None)]:
        name_at = len(strings)
        strings += name.encode() + b"\0"
        kind, content = (STRTAB, bytes(strings)) if data is None else (PROGBITS, data)
        body += bytes(-len(body) % 16)
        table += RECORD.pack(name_at, kind, 0, 0, len(body), len(content), 0, 0, 16, 0)
        body += content
    body += bytes(-len(body) % 16)
    count = len(table) // RECORD.size
    HEADER.pack_into(
        body, 0, MAGIC, 2, 1, 1, _CUDA_OS_ABI, _CUDA_ABI_VERSION, 2, EM_CUDA, 1, 0, 0, len(body), _CUDA_FLAGS | sm << 8,
        HEADER.size, 0, 0, RECORD.size, count, count - 1,
    )  # fmt: skip
    return bytes(body + table)
