"""NVML's functions as data: what a call is given and what it writes. The data are generated from protocol/spec_nvml."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from .._gen import nvml as generated


class NvmlResult(IntEnum):
    """The values of nvmlReturn_t that vgpud uses."""

    SUCCESS = 0
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    TIMEOUT = 10
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    UNKNOWN = 999


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a function; roles are those of protocol/gen/nvml.py."""

    role: str
    nbytes: int
    struct: str
    versions: tuple[int, ...]
    inputs: int


@dataclass(frozen=True, slots=True)
class Call:
    """One function that vgpud answers."""

    name: str
    in_snapshot: bool
    domain: int  # exclusive upper bound of each given integer; 0: no integers
    params: tuple[Param, ...]

    @property
    def of_device(self) -> bool:
        """Whether the function is about one device."""
        return any(param.role == "DEVICE" for param in self.params)

    @property
    def argument_count(self) -> int:
        """The number of integers in a question: those given, and the version and inputs of each versioned struct."""
        given = sum(param.role == "GIVEN" for param in self.params)
        return given + sum(1 + param.inputs for param in self.params if param.role == "VERSIONED")


CALLS = {
    name: Call(name, source == "snapshot", domain, tuple(Param(*row) for row in params))
    for name, (source, domain, params) in generated.CALLS.items()
}


def pack_struct(name: str, **fields: int | bytes) -> bytes:
    """A struct as laid out in the program's memory.

    Args:
        name: as in NVML.
        fields: every field, by name; text as bytes.
    Raises:
        KeyError, struct.error: a field is missing or does not fit.
    """
    layout, names = generated.STRUCTS[name]
    if len(fields) != len(names):
        raise KeyError(f"{name} has the fields {', '.join(names)}")
    return struct.pack(layout, *(fields[field] for field in names))
