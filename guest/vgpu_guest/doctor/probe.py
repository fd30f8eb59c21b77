"""The proof: a child with the program's environment opens the library that the loader names, and calls cuInit.

The child is `vgpu-probe` (shim/probe), which is beside the guest's libraries. It is executed from a descriptor, so that
it need not exist in the program's root.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..libraries import LIBRARIES
from ..payload import PACKAGED
from .place import CARRIED, Place, PlaceError, execute

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TIMEOUT_S = 15.0
NAME = "vgpu-probe"
INSTALLED = Path("/usr/lib/vgpu")


class NoProbeError(Exception):
    """vgpu-probe was not found; the text names where it was searched for."""


@dataclass
class Outcome:
    """A library's answer. `result` of cuInit, nvmlInit or cudaGetDeviceCount; None if the function did not return."""

    result: int | None = None
    name: str = ""  # name of the code `result`
    version: int = 0
    count: int = 0
    devices: list[dict[str, str]] = field(default_factory=list)  # name, pci, memory, capability
    tables: dict[str, int] = field(default_factory=dict)
    foreign: dict[str, str] = field(default_factory=dict)  # function names bound to another file, with that file
    missing: list[str] = field(default_factory=list)  # functions that the library lacks
    error: str = ""  # why the library could not be opened, or how the process ended
    said: list[str] = field(default_factory=list)  # the library's log


def candidates() -> Iterator[Path]:
    """Paths of the probe: installed in the guest, in the guest's package, beside this package's libraries."""
    yield INSTALLED / NAME
    yield PACKAGED / NAME
    yield LIBRARIES / NAME


def ask(place: Place, environment: Mapping[str, str], kind: str, library: str, tables: Sequence[str] = ()) -> Outcome:
    """Open `library` in a place and initialise it; `kind` is cuda, nvml or cudart.

    Raises:
        NoProbeError: vgpu-probe was not found.
        PlaceError: vgpu-probe cannot be started in the place.
    """
    path = next((path for path in candidates() if path.is_file()), None)
    if path is None:
        raise NoProbeError(f"{NAME} is neither {' nor '.join(map(str, candidates()))}")
    quiet = {key: value for key, value in environment.items() if key not in ("VGPU_LOG_FILE", "LD_DEBUG")}
    descriptor = os.open(path, os.O_RDONLY)
    try:
        command = [CARRIED, kind, library, *tables]
        finished = execute(place, command, quiet | {"VGPU_LOG": "info"}, timeout_s=TIMEOUT_S, carried=descriptor)
    finally:
        os.close(descriptor)
    outcome = _read(finished.stdout)
    outcome.said = [line.partition("]: ")[2] for line in finished.stderr.splitlines() if line.startswith("vgpu[")][:20]
    if finished.code is None:
        outcome.error = f"no answer within {TIMEOUT_S:g} s"
        outcome.result = None
    elif finished.code < 0:
        outcome.error = f"the process died of signal {-finished.code}"
        outcome.result = None
    elif finished.code and not outcome.error:
        outcome.error = next((line for line in finished.stderr.splitlines() if line), f"exit code {finished.code}")
    return outcome


def _read(text: str) -> Outcome:
    outcome = Outcome()
    devices: dict[int, dict[str, str]] = {}
    for line in text.splitlines():
        key, _, rest = line.partition(" ")
        first, _, value = rest.partition(" ")
        if key == "init":
            outcome.result = int(first)
        elif key == "init_name":
            outcome.name = first
        elif key in ("version", "count"):
            setattr(outcome, key, int(first))
        elif key in ("name", "pci", "memory", "capability"):
            devices.setdefault(int(first), {})[key] = value
        elif key == "table":
            outcome.tables[first] = int(value)
        elif key == "foreign":
            outcome.foreign[first] = value
        elif key == "missing":
            outcome.missing.append(first)
        elif key == "error":
            outcome.error = rest
    outcome.devices = [devices[index] for index in sorted(devices)]
    return outcome


__all__ = ["NoProbeError", "Outcome", "PlaceError", "ask", "candidates"]
