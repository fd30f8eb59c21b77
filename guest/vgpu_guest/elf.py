"""A small ELF reader: the header, and what a program asks of the dynamic linker. Offsets in the file are checked."""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

Data = bytes | mmap.mmap | memoryview

MAGIC = b"\x7fELF"
HEADER = struct.Struct("<4s5B7xHHIQQQIHHHHHH")  # Elf64_Ehdr
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 5, 10, 14, 15, 29
_DT_FLAGS_1, _DF_1_PIE = 0x6FFFFFFB, 0x08000000
_ENTRIES_CAP = 65536


class ElfError(ValueError):
    """Not a 64-bit little-endian ELF file, or a damaged one."""


class Header(NamedTuple):
    """The fields of Elf64_Ehdr that are used here; `programs` and `sections` are file offsets of the tables."""

    abi_version: int
    machine: int
    programs: int
    sections: int
    flags: int
    program_nbytes: int
    program_count: int
    section_nbytes: int
    section_count: int
    names: int  # index of the section that holds the sections' names


def read_header(data: Data) -> Header:
    """Read the ELF header. Raises ElfError unless the file is 64-bit little-endian ELF."""
    if len(data) < HEADER.size or data[:4] != MAGIC:
        raise ElfError("not an ELF file")
    (_, width, order, _, _, abi_version, _, machine, _, _, programs, sections, flags, _, program_nbytes, program_count,
     section_nbytes, section_count, names) = HEADER.unpack_from(data)  # fmt: skip
    if width != 2 or order != 1:
        raise ElfError("not a 64-bit little-endian ELF file")
    return Header(
        abi_version, machine, programs, sections, flags, program_nbytes, program_count, section_nbytes, section_count,
        names,
    )  # fmt: skip


def first_address(data: Data) -> int:
    """The address, as the file has it, of the page where the file's memory begins. Raises ElfError or struct.error."""
    header = read_header(data)
    at = [header.programs + index * header.program_nbytes for index in range(header.program_count)]
    programs = [struct.unpack_from("<IIQQ", data, start) for start in at]
    return min((address for kind, _, _, address in programs if kind == _PT_LOAD), default=0) & ~4095


@dataclass(frozen=True, slots=True)
class Dynamic:
    """The dynamic section's strings. `rpath` is empty if there is a `runpath`, since the loader then ignores it
    (ld.so(8)). `is_pie` marks a position-independent program, which has the ELF type of a library."""

    is_dynamic: bool
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    soname: str = ""
    is_pie: bool = False


def read_dynamic(path: Path) -> Dynamic:
    """Read a program's or library's dynamic section. Raises ElfError or OSError."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < HEADER.size:
            raise ElfError(f"{path}: not an ELF file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _parse(data)
            except (struct.error, OverflowError) as error:  # an offset outside the file, or outside any file
                raise ElfError(f"{path}: damaged ELF file ({error})") from error
            except ElfError as error:
                raise ElfError(f"{path}: {error}") from error


def _parse(data: mmap.mmap) -> Dynamic:
    header = read_header(data)
    if header.program_nbytes < 56:
        raise ElfError("program headers are too small")
    loads, dynamic, has_interpreter = [], None, False
    for index in range(header.program_count):
        kind, _flags, start, address, _physical, nbytes = struct.unpack_from(
            "<IIQQQQ", data, header.programs + index * header.program_nbytes
        )
        if kind == _PT_LOAD:
            loads.append((address, start, nbytes))
        elif kind == _PT_DYNAMIC:
            dynamic = (start, nbytes)
        elif kind == _PT_INTERP:
            has_interpreter = True
    if dynamic is None:
        return Dynamic(is_dynamic=has_interpreter)
    tags: dict[int, list[int]] = {}
    for index in range(min(dynamic[1] // 16, _ENTRIES_CAP)):
        tag, value = struct.unpack_from("<qQ", data, dynamic[0] + index * 16)
        if tag == 0:
            break
        tags.setdefault(tag, []).append(value)
    if _DT_STRTAB not in tags or _DT_STRSZ not in tags:
        return Dynamic(is_dynamic=has_interpreter)
    strings = _string_table(data, loads, tags[_DT_STRTAB][0], tags[_DT_STRSZ][0])

    def text(at: int) -> str:
        end = strings.find(b"\0", at)
        if at >= len(strings) or end < 0:
            raise ElfError("a string lies outside the string table")
        return os.fsdecode(strings[at:end])

    def paths(tag: int) -> tuple[str, ...]:
        return tuple(part for at in tags.get(tag, ())[:1] for part in text(at).split(":") if part)

    runpath = paths(_DT_RUNPATH)
    return Dynamic(
        is_dynamic=has_interpreter,
        needed=tuple(text(at) for at in tags.get(_DT_NEEDED, ())),
        rpath=() if _DT_RUNPATH in tags else paths(_DT_RPATH),
        runpath=runpath,
        soname=next((text(at) for at in tags.get(_DT_SONAME, ())), ""),
        is_pie=any(flags & _DF_1_PIE for flags in tags.get(_DT_FLAGS_1, ())),
    )


def _string_table(data: mmap.mmap, loads: list[tuple[int, int, int]], address: int, nbytes: int) -> bytes:
    for start, offset, length in loads:
        if start <= address < start + length and nbytes <= start + length - address:
            return data[offset + address - start : offset + address - start + nbytes]
    raise ElfError("the string table is in no segment")
