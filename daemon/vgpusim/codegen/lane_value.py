"""A warp's value as LLVM IR holds it, and how the types and constants of both forms are spelled.

A varying value is a vector of all lanes; one of a known pattern (lane_pattern.py) is lane 0's scalar."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from vgpusim.codegen.abi import WARP
from vgpusim.codegen.lane_pattern import Pattern

FP_NAMES = {"f16": "half", "f32": "float", "f64": "double", "bf16": "bfloat"}
FP_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


@dataclass(frozen=True, slots=True)
class Value:
    """An operand's value: lane 0's scalar when the pattern is known, else a vector."""

    text: str
    nbits: int
    pattern: Pattern

    @property
    def uniform(self) -> bool:
        return self.pattern.uniform

    @property
    def form(self) -> Form:
        return SCALAR if self.pattern.known else LANES


@dataclass(frozen=True, slots=True)
class Bound:
    """A predicate that compares an index with a limit that all lanes share."""

    index: Value
    limit: Value
    relation: str  # slt, sle, ult or ule
    holds: bool  # true: the predicate is "index below limit"; false: its opposite


@dataclass(frozen=True, slots=True)
class Indexed:
    """A 64-bit register that holds index * factor + base, of an index of 32 bits in each lane."""

    index: str  # <32 x i32>
    pattern: Pattern  # of the index, modulo 2**32
    signed: bool
    factor: int
    base: str  # i64, the same in every lane


class Form:
    """Whether an operation is done once (n = 1) or on all lanes (n = 32); spells types and constants."""

    def __init__(self, n: int) -> None:
        self.n = n

    @property
    def vector(self) -> bool:
        return self.n > 1

    def of(self, element: str) -> str:
        return f"<{self.n} x {element}>" if self.n > 1 else element

    def const(self, value: int, nbits: int) -> str:
        value &= (1 << nbits) - 1
        if value >> (nbits - 1) and nbits > 1:
            value -= 1 << nbits
        return f"splat (i{nbits} {value})" if self.n > 1 else str(value)

    def fconst(self, value: float, element: str) -> str:
        """A constant exactly representable in `element`."""
        text = f"0x{int.from_bytes(struct.pack('>d', value), 'big'):016X}"
        if element == "half":
            text = f"0xH{int.from_bytes(struct.pack('>e', value), 'big'):04X}"
        return f"splat ({element} {text})" if self.n > 1 else text

    def int(self, nbits: int) -> str:
        return self.of(f"i{nbits}")

    def suffix(self, element: str) -> str:
        """The intrinsic-name suffix of a type: i32 or v32i32, f32 or v32f32."""
        name = FP_SUFFIX.get(element, element)
        return f"v{self.n}{name}" if self.n > 1 else name


SCALAR, LANES = Form(1), Form(WARP)
