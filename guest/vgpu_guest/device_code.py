"""Which device code a program or library carries: kinds and architectures, without decoding any of it."""

from __future__ import annotations

import mmap
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .elf import ElfError
from .elf_section import ranges
from .fatbin import KIND_ELF, KIND_PTX, MAGIC, Entry, FatbinError, read_container

if TYPE_CHECKING:
    from pathlib import Path

SECTIONS = frozenset({".nv_fatbin", "__nv_relfatbin"})
_CONTAINERS_CAP = 200_000  # libtorch_cuda has some 10,000 containers
_SEARCHED_NBYTES = 8 << 30


@dataclass
class DeviceCode:
    """`kinds` counts entries by kind and target, as "PTX sm_75"; `usable` counts containers that the device can run."""

    containers: int = 0
    usable: int = 0
    damaged: int = 0
    kinds: Counter[str] = field(default_factory=Counter)


def runs(entry: Entry, compute_capability: tuple[int, int], machine_code: bool) -> bool:
    """Whether a device can run an entry: PTX for this or an older architecture; machine code, if the endpoint executes
    it, of the same major and no later minor version."""
    if entry.kind == KIND_PTX:
        return entry.target.runs_on(compute_capability)
    if entry.kind == KIND_ELF and machine_code:
        major, minor = divmod(entry.target.number, 10)
        exact = entry.target.suffix == "a"
        return major == compute_capability[0] and (
            minor == compute_capability[1] if exact else minor <= compute_capability[1]
        )
    return False


def read(path: Path, compute_capability: tuple[int, int], machine_code: bool) -> DeviceCode:
    """All containers in nvcc's sections. Raises OSError; a file that is not an ELF file has none."""
    found = DeviceCode()
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < 64:
            return found
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
            try:
                sections = list(ranges(data, SECTIONS))
            except ElfError:
                return found
            left_nbytes = _SEARCHED_NBYTES
            for begin, end in sections:
                left_nbytes -= end - begin
                if left_nbytes < 0:
                    break
                _read_section(data, view, begin, end, found, compute_capability, machine_code)
    return found


def _read_section(
    data: mmap.mmap,
    view: memoryview,
    begin: int,
    end: int,
    found: DeviceCode,
    compute_capability: tuple[int, int],
    machine_code: bool,
) -> None:
    place = begin
    while found.containers < _CONTAINERS_CAP and (place := data.find(MAGIC, place, end)) >= 0:
        try:
            container = read_container(view[place:end])
        except FatbinError:
            found.damaged += 1
            place += 4
            continue
        place += container.nbytes
        if container.entries:  # nvcc adds an empty container when it links
            found.containers += 1
            found.usable += any(runs(entry, compute_capability, machine_code) for entry in container.entries)
            found.kinds.update(f"{entry.kind_name} {entry.target}" for entry in container.entries)
        del container  # its views keep the file mapped
