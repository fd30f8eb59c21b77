"""Calls the core library by ctypes; core/register.cc defines the functions."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from .tables import Rules


class Kind(IntEnum):
    FALLBACK = 0
    COPY = 1
    REFUSAL = 2
    DISTRIBUTION = 3


class CoreError(Exception):
    pass


class Core:
    def __init__(self, library: Path, in_place: bool, asynchronous: bool, assertions_on_device: bool) -> None:
        self._library = ctypes.PyDLL(str(library))  # PyDLL keeps the GIL, because registrations are quick
        self._library.vgpu_torch_error.restype = ctypes.c_char_p
        self._library.vgpu_torch_trace_text.restype = ctypes.c_char_p
        self._override = self._library.vgpu_torch_override
        text, number = [ctypes.c_char_p], [ctypes.c_int]
        self._override.argtypes = text * 3 + number * 2 + text * 2 + [ctypes.c_ulonglong] + text * 3
        self._check(self._library.vgpu_torch_init(in_place, asynchronous, assertions_on_device))

    @property
    def is_in_place(self) -> bool:
        return bool(self._library.vgpu_torch_is_in_place())

    def trace(self, on: bool) -> None:
        """Start or stop recording the operators that run on the CPU."""
        self._library.vgpu_torch_trace(int(on))

    def traced(self) -> list[tuple[str, str]]:
        """The distinct operators recorded since the last call, in order, each with the number of its first tensor's
        dtype."""
        lines = self._library.vgpu_torch_trace_text().decode().splitlines()
        return [(name, dtype) for name, dtype in (line.split("\t") for line in lines)]

    def override(self, name: str, key: str, kind: Kind, rules: Rules) -> None:
        """Replace the kernel of `name` (namespace::name.overload) for the dispatch key `key`."""
        base, _, overload = name.partition(".")
        words = (rules.method, rules.kernel)
        method, kernel = (word.encode() for word in words)
        hidden = " ".join(rules.hidden_writes).encode()
        self._check(
            self._override(
                base.encode(),
                overload.encode(),
                key.encode(),
                kind,
                rules.device,
                method,
                kernel,
                rules.refused_dtypes,
                hidden,
                rules.alert.encode(),
                rules.alert_when.encode(),
            )
        )

    def _check(self, result: int) -> None:
        if result != 0:
            raise CoreError(self._library.vgpu_torch_error().decode(errors="replace"))
