"""Sums of products as a tensor core makes them.

The exact products and the accumulator are aligned to the greatest exponent among them, cut after some bits of fraction,
and added as integers; the sum is cut to f32, or rounded to f16. A product's exponent is the sum of its factors', so its
significand may be up to 4, and a subnormal factor or zero has the smallest exponent of its type. Hopper keeps 25 bits
and takes all of k at once. Source: the published bit-accurate models of tensor cores (Fasi et al. 2021, "Numerical
behavior of NVIDIA tensor cores"; Li et al. 2025, "MMA-Sim"); tests/vgpusim/codegen/test_card_warp.py compares with an
H200."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES

FRACTION_BITS = 25  # of Hopper for f16, bf16 and tf32
_SMALLEST = {"f16": -14, "bf16": -126, "tf32": -126}  # exponents
KINDS = frozenset(_SMALLEST)
_ACCUMULATOR_SMALLEST = -126
_GROUP = 8  # terms whose sum fits 32 bits: each is below 2**(2 + FRACTION_BITS)
_FAST_SPAN = 50  # in single precision, factors of at most 2**50 and, but zero, at least 2**-50
_FAST_ACCUMULATOR = (-76, 100)
_FAST_SMALLEST = -2 * _FAST_SPAN - 1


@dataclass(frozen=True, slots=True)
class Precision:
    """The type that products and scales are computed in: exact in double always, in float for usual operands."""

    element: str
    exponent_mask: int
    integer: int  # bits of the aligned terms

    @property
    def nbits(self) -> int:
        return 64 if self.element == "double" else 32


SINGLE = Precision("float", 0x7F800000, 32)
DOUBLE = Precision("double", 0x7FF0000000000000, 64)


def widen(e: Emitter, to: Precision, value: str) -> str:
    return value if to is SINGLE else e.v(f"fpext {LANES.of('float')} {value} to {LANES.of('double')}")


def power(e: Emitter, precision: Precision, value: str, smallest: int) -> str:
    """2 to the exponent of a value, at least 2**smallest."""
    nbits, kind = precision.nbits, LANES.of(precision.element)
    bits = e.v(f"bitcast {kind} {value} to {LANES.int(nbits)}")
    mask = LANES.const(precision.exponent_mask, nbits)
    alone = e.v(f"bitcast {LANES.int(nbits)} {e.v(f'and {LANES.int(nbits)} {bits}, {mask}')} to {kind}")
    return _maximum(e, kind, alone, LANES.fconst(2.0**smallest, precision.element))


def factor_power(e: Emitter, precision: Precision, value: str, kind: str) -> str:
    return power(e, precision, value, _SMALLEST[kind])


def _maximum(e: Emitter, kind: str, a: str, b: str) -> str:
    return e.v(f"select <{LANES.n} x i1> {e.v(f'fcmp ogt {kind} {a}, {b}')}, {kind} {a}, {kind} {b}")


def total(
    e: Emitter, precision: Precision, factors: Sequence[tuple[str, str]], powers: Sequence[tuple[str, str]], c: str
) -> str:
    """The sum, a vector of doubles that holds it exactly."""
    kind, word, double = LANES.of(precision.element), LANES.int(precision.integer), LANES.of("double")
    # In single precision the scale of nothing but zeros has to be finite; usual operands are greater, or zero.
    largest = power(e, precision, c, _FAST_SMALLEST if precision is SINGLE else _ACCUMULATOR_SMALLEST)
    for x, y in powers:
        largest = _maximum(e, kind, largest, e.v(f"fmul {kind} {x}, {y}"))
    scale = e.v(f"fdiv {kind} {LANES.fconst(2.0**FRACTION_BITS, precision.element)}, {largest}")
    terms = [e.v(f"fmul {kind} {x}, {y}") for x, y in factors]
    groups = [[c], *(terms[at : at + _GROUP] for at in range(0, len(terms), _GROUP))]
    result = ""
    for group in groups:
        parts = [e.v(f"fptosi {kind} {e.v(f'fmul {kind} {term}, {scale}')} to {word}") for term in group]
        added = parts[0]
        for part in parts[1:]:
            added = e.v(f"add {word} {added}, {part}")
        wide = e.v(f"sitofp {word} {added} to {double}")
        result = e.v(f"fadd {double} {result}, {wide}") if result else wide
    largest = largest if precision is DOUBLE else widen(e, DOUBLE, largest)
    unit = e.v(f"fmul {double} {largest}, {LANES.fconst(2.0**-FRACTION_BITS, 'double')}")
    return e.v(f"fmul {double} {result}, {unit}")


def cut_to_single(e: Emitter, value: str) -> str:
    """A double towards zero to a float, both normal."""
    double, word = LANES.of("double"), LANES.int(64)
    kept = e.v(f"and {word} {e.from_fp(LANES, value, 'f64')}, {LANES.const(-1 << 29, 64)}")
    return e.v(f"fptrunc {double} {e.to_fp(LANES, kept, 'f64')} to {LANES.of('float')}")


def or_special(e: Emitter, factors: Sequence[tuple[str, str]], c: str, bits: str, d_type: str) -> str:
    """The result's bits, or those of an infinity or NaN where one takes part. In double nothing else makes one."""
    double, flag = LANES.of("double"), LANES.int(1)
    value = c
    for x, y in factors:
        value = e.fcall(LANES, "fma", "double", x, y, value)
    nbits, infinity, nan = (16, 0x7C00, 0x7FFF) if d_type == "f16" else (32, 0x7F800000, 0x7FFFFFFF)
    kind = LANES.int(nbits)
    size = e.fcall(LANES, "fabs", "double", value)
    limitless = e.v(f"fcmp oeq {double} {size}, {LANES.fconst(float('inf'), 'double')}")
    negative = e.v(f"fcmp olt {double} {value}, {LANES.fconst(0.0, 'double')}")
    signed = e.v(f"select {flag} {negative}, {kind} {LANES.const(infinity | 1 << (nbits - 1), nbits)}, "
                 f"{kind} {LANES.const(infinity, nbits)}")  # fmt: skip
    bits = e.v(f"select {flag} {limitless}, {kind} {signed}, {kind} {bits}")
    unordered = e.v(f"fcmp uno {double} {value}, {value}")
    return e.v(f"select {flag} {unordered}, {kind} {LANES.const(nan, nbits)}, {kind} {bits}")


def all_usual(e: Emitter, factors: Sequence[str], accumulators: Sequence[str], kind: str) -> str:
    """Whether single precision serves for all of these floats, a scalar: no infinity, no NaN, and nothing that
    overflows or underflows in between."""
    if kind == "f16":
        bounds = [(v, 0.0, 2.0**16) for v in factors] + [(v, 0.0, float("inf")) for v in accumulators]
    else:
        low, high = _FAST_ACCUMULATOR
        bounds = [(v, 2.0**-_FAST_SPAN, 2.0**_FAST_SPAN) for v in factors]
        bounds += [(v, 2.0**low, 2.0**high) for v in accumulators]
    single, flag = LANES.of("float"), LANES.int(1)
    usual = ""
    for value, low_bound, high_bound in bounds:
        size = e.fcall(LANES, "fabs", "float", value)
        fits = e.v(f"fcmp olt {single} {size}, {LANES.fconst(high_bound, 'float')}")
        if low_bound:
            large = e.v(f"fcmp oge {single} {size}, {LANES.fconst(low_bound, 'float')}")
            zero = e.v(f"fcmp oeq {single} {size}, {LANES.fconst(0.0, 'float')}")
            fits = e.v(f"and {flag} {fits}, {e.v(f'or {flag} {large}, {zero}')}")
        usual = e.v(f"and {flag} {usual}, {fits}") if usual else fits
    return e.v(f"icmp eq i{LANES.n} {e.v(f'bitcast {flag} {usual} to i{LANES.n}')}, -1")
