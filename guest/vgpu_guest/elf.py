"""A small ELF reader: what a program asks of the dynamic linker. Every offset comes from the file and is checked."""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 5, 10, 14, 15, 29
_ENTRIES_CAP = 65536


class ElfError(ValueError):
    """Not a 64-bit little-endian ELF file, or a damaged one."""


@dataclass(frozen=True, slots=True)
class Dynamic:
    """The dynamic section's strings. `rpath` counts only without a `runpath` (ld.so(8)), and is empty then."""

    is_dynamic: bool
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    soname: str = ""


def read_dynamic(path: Path) -> Dynamic:
    """Read a program's or library's dynamic section. Raises ElfError or OSError."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < 64:
            raise ElfError(f"{path}: not an ELF file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _parse(data)
            except (struct.error, OverflowError) as error:  # an offset outside the file, or outside any file
                raise ElfError(f"{path}: damaged ELF file ({error})") from error
            except ElfError as error:
                raise ElfError(f"{path}: {error}") from error


def _parse(data: mmap.mmap) -> Dynamic:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ElfError("not a 64-bit little-endian ELF file")
    (offset,) = struct.unpack_from("<Q", data, 32)
    entry_nbytes, count = struct.unpack_from("<HH", data, 54)
    if entry_nbytes < 56:
        raise ElfError("program headers are too small")
    loads, dynamic, has_interpreter = [], None, False
    for index in range(count):
        kind, _flags, start, address, _physical, nbytes = struct.unpack_from(
            "<IIQQQQ", data, offset + index * entry_nbytes
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
    )


def _string_table(data: mmap.mmap, loads: list[tuple[int, int, int]], address: int, nbytes: int) -> bytes:
    for start, offset, length in loads:
        if start <= address < start + length and nbytes <= start + length - address:
            return data[offset + address - start : offset + address - start + nbytes]
    raise ElfError("the string table is in no segment")
