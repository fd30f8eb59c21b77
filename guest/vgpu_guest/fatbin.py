"""Fat binary containers: what they hold, without decoding it.

A container is a header and entries back to back. Layout (little-endian; observed in the output of nvcc and in NVIDIA's
libraries, CUDA 11 to 13):

    container   0 u32 magic  4 u16 version (1)  6 u16 header size  8 u64 size of the entries
    entry       0 u16 kind  4 u32 header size  8 u64 payload size, padded  16 u32 compressed size, 0 if raw  28 u32 sm
                40 u64 flags  56 u64 uncompressed size, 0 if raw
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = struct.pack("<I", 0xBA55ED50)

_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<H2xIQI8xI8xQ8xQ")  # kind, header, payload, compressed, sm, flags, uncompressed
_MAX_ENTRY_HEADER_NBYTES = 4096  # 64 to 136 are seen

KIND_PTX = 1
KIND_ELF = 2
KIND_LTO = 8
_KIND_NAMES = {KIND_PTX: "PTX", KIND_ELF: "ELF", KIND_LTO: "LTO-IR"}

_FLAG_LZ4 = 0x2000
_FLAG_ZSTD = 0x8000
_FLAG_ARCH_SPECIFIC = 0x100000
_FLAG_FAMILY_SPECIFIC = 0x200000

_NOT_ZERO = re.compile(rb"[^\0]")
_TARGET = re.compile(r"sm_([0-9]{1,4})([af]?)")


class FatbinError(ValueError):
    """A container that is damaged, cut off, or contradicts itself."""


class Compression(Enum):
    """How a payload is stored."""

    NONE = "raw"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True)
class Target:
    """An architecture that PTX is for, as in sm_90a.

    `suffix` limits where it runs: "" on this and all later architectures, "f" on this and later ones of the same major
    number, "a" only on this one.
    """

    number: int
    suffix: str = ""

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"

    @property
    def preference(self) -> tuple[int, int]:
        """Sort key: of two targets that run on a device, the greater key is the better match."""
        return self.number, ("", "f", "a").index(self.suffix)

    @classmethod
    def parse(cls, text: str) -> Target | None:
        """The target named `text`, None if it is not of the form sm_90, sm_90a, sm_100f."""
        found = _TARGET.fullmatch(text)
        return cls(int(found[1]), found[2]) if found else None

    def runs_on(self, compute_capability: tuple[int, int]) -> bool:
        """Whether PTX for this target can be compiled for a device."""
        own = divmod(self.number, 10)
        if self.suffix == "a":
            return own == compute_capability
        if self.suffix == "f":
            return own[0] == compute_capability[0] and own[1] <= compute_capability[1]
        return own <= compute_capability


@dataclass(frozen=True)
class Entry:
    """One program in a container."""

    kind: int
    target: Target
    compression: Compression
    stored: memoryview  # the bytes in the container, without padding if its size is known
    uncompressed_nbytes: int  # as declared; the stored size if raw

    @property
    def kind_name(self) -> str:
        """PTX, ELF, LTO-IR or the number."""
        return _KIND_NAMES.get(self.kind, f"kind {self.kind}")


@dataclass(frozen=True)
class Container:
    """A fat binary of one translation unit."""

    entries: tuple[Entry, ...]
    nbytes: int  # header included


def is_fatbin(data: memoryview) -> bool:
    """Whether a container begins here."""
    return data[:4] == MAGIC


def read_container(data: memoryview) -> Container:
    """The container at the start of `data`; more data may follow.

    Raises:
        FatbinError: it does not fit into `data` or contradicts itself.
    """
    if len(data) < _CONTAINER.size:
        raise FatbinError(f"fatbin: truncated header ({len(data)} bytes)")
    magic, version, header_nbytes, entries_nbytes = _CONTAINER.unpack_from(data)
    if magic != 0xBA55ED50 or version != 1 or header_nbytes < _CONTAINER.size:
        raise FatbinError(f"fatbin: unknown header (version {version}, {header_nbytes} bytes)")
    end = header_nbytes + entries_nbytes
    if end > len(data):
        raise FatbinError(f"fatbin: truncated: {end} bytes declared, {len(data)} there")
    entries: list[Entry] = []
    place = header_nbytes
    while place < end:
        entry, nbytes = _read_entry(data[place:end])
        entries.append(entry)
        place += nbytes
    return Container(tuple(entries), end)


def read_containers(data: memoryview) -> Iterator[Container]:
    """Containers back to back, with nothing but zero bytes between and after them."""
    place = 0
    while True:
        container = read_container(data[place:])
        yield container
        place += container.nbytes
        following = _NOT_ZERO.search(data, place)
        if following is None:
            return
        place = following.start()


def _read_entry(data: memoryview) -> tuple[Entry, int]:
    """The entry at the start of `data` and its length with header and padding."""
    if len(data) < _ENTRY.size:
        raise FatbinError(f"fatbin: truncated entry ({len(data)} bytes)")
    kind, header_nbytes, payload_nbytes, compressed_nbytes, number, flags, declared_nbytes = _ENTRY.unpack_from(data)
    if not _ENTRY.size <= header_nbytes <= _MAX_ENTRY_HEADER_NBYTES:
        raise FatbinError(f"fatbin: entry header of {header_nbytes} bytes")
    if header_nbytes + payload_nbytes > len(data):
        raise FatbinError(f"fatbin: entry of {payload_nbytes} bytes exceeds its container")
    match flags & (_FLAG_LZ4 | _FLAG_ZSTD):
        case 0:
            compression = Compression.NONE
        case 0x2000:
            compression = Compression.LZ4
        case 0x8000:
            compression = Compression.ZSTD
        case _:
            raise FatbinError("fatbin: entry with two kinds of compression")
    if compression is Compression.NONE:
        stored_nbytes = declared_nbytes = payload_nbytes
    elif 0 < compressed_nbytes <= payload_nbytes:
        stored_nbytes = compressed_nbytes
    else:
        raise FatbinError(f"fatbin: {compressed_nbytes} compressed bytes in a payload of {payload_nbytes}")
    suffix = "a" if flags & _FLAG_ARCH_SPECIFIC else "f" if flags & _FLAG_FAMILY_SPECIFIC else ""
    stored = data[header_nbytes : header_nbytes + stored_nbytes]
    entry = Entry(kind, Target(number, suffix), compression, stored, declared_nbytes)
    return entry, header_nbytes + payload_nbytes


def describe(entries: list[Entry]) -> str:
    """A summary for a log line: "ELF sm_86, sm_120; PTX sm_120"."""
    kinds: dict[str, set[Target]] = {}
    for entry in entries:
        kinds.setdefault(entry.kind_name, set()).add(entry.target)
    parts = []
    for kind in sorted(kinds):
        targets = sorted(kinds[kind], key=lambda target: target.preference)
        parts.append(f"{kind} {', '.join(map(str, targets))}")
    return "; ".join(parts) or "nothing"
