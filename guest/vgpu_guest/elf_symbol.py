"""The symbols of an ELF file: defined and undefined names, the version tags of both, and the functions of a statically
linked library that the file calls.

They are found by the section table, which stripped libraries keep. Offsets come from the file and are checked.
"""

from __future__ import annotations

import bisect
import mmap
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from .elf import Data, ElfError, first_address
from .elf_section import DYNSYM, SYMTAB, Section, read_sections

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

_T = TypeVar("_T")

_VERNEED, _VERDEF, _VERSYM = 0x6FFFFFFE, 0x6FFFFFFD, 0x6FFFFFFF
_STB_LOCAL, _STB_GLOBAL = 0, 1
_STV_DEFAULT, _STV_HIDDEN = 0, 2
_STT_FUNC = 2
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOLS_CAP = 1 << 20
_VERSIONS_CAP = 4096
_NAME_NBYTES = 4096


@dataclass(frozen=True)
class Symbols:
    """`defined` names; `wanted`: undefined names with their version tag or ""; `tags`: versions defined."""

    defined: frozenset[str]
    wanted: dict[str, str]
    tags: frozenset[str]


def read_symbols(path: Path) -> Symbols:
    """Read the dynamic symbols; none are found without a section table. Raises ElfError or OSError."""
    return _read(path, lambda reader: reader.symbols())


def read_called(path: Path, pattern: re.Pattern[str]) -> frozenset[str] | None:
    """Hidden functions of a static library that the rest of the program refers to.

    GNU ld marks a hidden function that another object refers to as local with default visibility in the symbol table;
    the library's other functions stay global and hidden. Other linkers make all of them local.

    Returns:
        The names that match; None if the file does not show them (it is stripped, or linked by another linker).
    Raises:
        ElfError or OSError.
    """
    return _read(path, lambda reader: reader.called(pattern))


def read_functions(path: Path, offsets: Collection[int]) -> dict[int, str]:
    """The functions that lie at these distances from the file's first byte in memory; none where no function does.
    Raises ElfError or OSError."""
    return _read(path, lambda reader: reader.functions(offsets))


def read_undefined(data: bytes) -> list[str]:
    """The undefined names of an object file, given as bytes. Raises ElfError, or struct.error if it is damaged."""
    return _Reader(data).undefined()


def _read(path: Path, ask: Callable[[_Reader], _T]) -> _T:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < 64:
            raise ElfError(f"{path}: not an ELF file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return ask(_Reader(data))
            except (struct.error, OverflowError, IndexError) as error:
                raise ElfError(f"{path}: damaged ELF file ({error})") from error
            except ElfError as error:
                raise ElfError(f"{path}: {error}") from error


class _Reader:
    def __init__(self, data: Data) -> None:
        self.data = data
        self.sections = read_sections(data)

    def symbols(self) -> Symbols:
        found = self._first(DYNSYM)
        if found is None:
            return Symbols(frozenset(), {}, frozenset())
        strings = self._linked(found)
        names, tags = self._versions()
        versym = self._first(_VERSYM)
        defined: set[str] = set()
        wanted: dict[str, str] = {}
        for index, (name_at, info, _other, section, _value, _size) in self._entries(found):
            if info >> 4 == _STB_LOCAL:
                continue
            name = self._string(strings, name_at)
            if section:
                defined.add(name)
                continue
            number = struct.unpack_from("<H", self.data, versym.offset + 2 * index)[0] & 0x7FFF if versym else 0
            wanted[name] = names.get(number, "")
        return Symbols(frozenset(defined), wanted, frozenset(tags))

    def called(self, pattern: re.Pattern[str]) -> frozenset[str] | None:
        found = self._first(SYMTAB)
        if found is None:
            return None
        strings = self._linked(found)
        names: dict[int, set[str]] = {_STV_DEFAULT: set(), _STV_HIDDEN: set()}
        for _, (name_at, info, other, section, _value, _size) in self._entries(found):
            binding = _STB_LOCAL if other & 3 == _STV_DEFAULT else _STB_GLOBAL
            if info == (binding << 4 | _STT_FUNC) and section and other & 3 in names:
                name = self._string(strings, name_at)
                if pattern.match(name):
                    names[other & 3].add(name)
        return frozenset(names[_STV_DEFAULT]) if names[_STV_HIDDEN] else None

    def functions(self, offsets: Collection[int]) -> dict[int, str]:
        begin = first_address(self.data)
        ordered = sorted(offsets)
        found: dict[int, str] = {}
        for table in (self._first(SYMTAB), self._first(DYNSYM)):
            strings = self._linked(table) if table else None
            for _, (name_at, info, _other, section, value, nbytes) in self._entries(table) if table else ():
                if info & 15 == _STT_FUNC and section and nbytes and strings:
                    first = bisect.bisect_left(ordered, value - begin)
                    for offset in ordered[first : bisect.bisect_left(ordered, value - begin + nbytes)]:
                        found.setdefault(offset, self._string(strings, name_at))
        return found

    def undefined(self) -> list[str]:
        found = self._first(SYMTAB)
        if found is None:
            return []
        strings = self._linked(found)
        return [self._string(strings, entry[0]) for _, entry in self._entries(found) if not entry[3]]

    def _entries(self, table: Section) -> Iterator[tuple[int, tuple[int, int, int, int, int, int]]]:
        for index in range(1, min(table.nbytes // _SYMBOL.size, _SYMBOLS_CAP)):
            yield index, _SYMBOL.unpack_from(self.data, table.offset + index * _SYMBOL.size)

    def _versions(self) -> tuple[dict[int, str], list[str]]:
        """The required versions by number, and the names of the defined versions except the file's own name."""
        names: dict[int, str] = {}
        tags: list[str] = []
        need = self._first(_VERNEED)
        if need is not None:
            strings, place = self._linked(need), need.offset
            for _ in range(min(need.info, _VERSIONS_CAP)):
                _version, count, _file, auxiliary, following = struct.unpack_from("<HHIII", self.data, place)
                at = place + auxiliary
                for _ in range(min(count, _VERSIONS_CAP)):
                    _hash, _flags, number, name, next_auxiliary = struct.unpack_from("<IHHII", self.data, at)
                    names[number & 0x7FFF] = self._string(strings, name)
                    at += next_auxiliary
                place += following
        definition = self._first(_VERDEF)
        if definition is not None:
            strings, place = self._linked(definition), definition.offset
            for _ in range(min(definition.info, _VERSIONS_CAP)):
                _version, flags, _number, _count, _hash, auxiliary, following = struct.unpack_from(
                    "<HHHHIII", self.data, place
                )
                (name,) = struct.unpack_from("<I", self.data, place + auxiliary)
                if not flags & 1:  # VER_FLG_BASE is the file's own name
                    tags.append(self._string(strings, name))
                place += following
        return names, tags

    def _first(self, kind: int) -> Section | None:
        return next((section for section in self.sections if section.kind == kind), None)

    def _linked(self, section: Section) -> tuple[int, int]:
        table = self.sections[section.link]
        return table.offset, table.nbytes

    def _string(self, table: tuple[int, int], at: int) -> str:
        start, nbytes = table
        if at >= nbytes:
            raise ElfError("a string lies outside the string table")
        name, end, _ = bytes(self.data[start + at : min(start + nbytes, start + at + _NAME_NBYTES)]).partition(b"\0")
        if not end:
            raise ElfError("a string does not end")
        return os.fsdecode(name)
