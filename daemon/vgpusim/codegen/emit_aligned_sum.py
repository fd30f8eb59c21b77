"""Sums of products as a tensor core makes them.

The exact products and the accumulator are aligned to the greatest exponent among them, cut after some bits of fraction,
and added as integers; the sum is cut to f32, or rounded to f16. A product's exponent is the sum of its factors', so its
significand may be up to 4; a subnormal factor has the smallest exponent of its type, and a product or accumulator that
is zero takes no part in the alignment. Hopper keeps 25 bits and takes 32 bytes of k at once; in wgmma of 8-bit floats
it keeps 13 bits, and a sum has 14 bits. Source: the published bit-accurate models of tensor cores (Fasi et al. 2021,
"Numerical behavior of NVIDIA tensor cores"; Xie et al. 2025, "MMA-Sim"); tests/vgpusim/codegen/test_card_warp.py
compares with an H200.

Usual operands, neither infinite nor NaN nor of extreme exponents, are multiplied in f32 and added in 32 bits; others in
f64 and 64 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgpusim.codegen.emit_convert import double_to_half
from vgpusim.codegen.emit_rounding import narrow
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES

SMALLEST = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14}  # exponents
_ACCUMULATOR_SMALLEST = -126
_FAST_SPAN = 50  # in single precision, factors are zero or of magnitude 2**-50 to 2**50
_FAST_ACCUMULATOR = (-76, 100)
_FAST_LEAST = -101  # below the exponent of any product or accumulator in single precision
_LEAST = -300  # the same in double precision
_SIGN, _MAGNITUDE = 1 << 31, (1 << 31) - 1

Factors = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Unit:
    """What a kind of tensor core keeps: bits of fraction of the aligned terms, significant bits of an f32 result."""

    fraction: int
    significant: int


WIDE, NARROW = Unit(25, 24), Unit(13, 14)


@dataclass(frozen=True, slots=True)
class Terms:
    """The factors of the products of one sum, and powers of two of their exponents; the accumulator, f32."""

    factors: Factors
    powers: Factors
    accumulator: str


# ---- usual operands


def single_power(e: Emitter, value: str, kind: str) -> str:
    """2 to the exponent of a float that is a factor of type `kind`; 0 of zero."""
    return _power(e, value, SMALLEST[kind], "float", 0x7F800000)


def _power(e: Emitter, value: str, smallest: int, element: str, mask: int) -> str:
    nbits = 32 if element == "float" else 64
    kind, word = LANES.of(element), LANES.int(nbits)
    bits = e.v(f"bitcast {kind} {value} to {word}")
    alone = e.v(f"bitcast {word} {e.v(f'and {word} {bits}, {LANES.const(mask, nbits)}')} to {kind}")
    if smallest <= -126 and element == "float":  # usual operands are normal, or zero
        return alone
    larger = _maximum(e, kind, alone, LANES.fconst(2.0**smallest, element))
    zero = e.v(f"fcmp oeq {kind} {value}, {LANES.fconst(0.0, element)}")
    return e.v(f"select {LANES.int(1)} {zero}, {kind} {LANES.fconst(0.0, element)}, {kind} {larger}")


def _maximum(e: Emitter, kind: str, a: str, b: str) -> str:
    return e.v(f"select {LANES.int(1)} {e.v(f'fcmp ogt {kind} {a}, {b}')}, {kind} {a}, {kind} {b}")


def single_sum(e: Emitter, unit: Unit, terms: Terms) -> tuple[str, str, str | None]:
    """The sum of usual operands, i32; the value of its lowest bit, f32; whether the sum overflowed, None: it cannot."""
    kind, word = LANES.of("float"), LANES.int(32)
    largest = LANES.fconst(2.0**_FAST_LEAST, "float")  # if all terms are zero
    for x, y in terms.powers:
        largest = _maximum(e, kind, e.v(f"fmul {kind} {x}, {y}"), largest)
    # The accumulator comes last: it may be the previous sum, and work without it need not wait for that sum.
    largest = _maximum(e, kind, _power(e, terms.accumulator, -126, "float", 0x7F800000), largest)
    exponent = e.v(f"bitcast {kind} {largest} to {word}")
    scale = e.v(f"sub {word} {LANES.const((254 + unit.fraction) << 23, 32)}, {exponent}")
    scale = e.v(f"bitcast {word} {scale} to {kind}")
    worth = e.v(f"sub {word} {exponent}, {LANES.const(unit.fraction << 23, 32)}")
    worth = e.v(f"bitcast {word} {worth} to {kind}")

    def aligned(value: str) -> str:
        return e.v(f"fptosi {kind} {e.v(f'fmul {kind} {value}, {scale}')} to {word}")

    total = ""
    for x, y in terms.factors:
        part = aligned(e.v(f"fmul {kind} {x}, {y}"))
        total = e.v(f"add {word} {total}, {part}") if total else part
    # A product is below 4 * 2**fraction: the sum of 16 fits 31 bits, but adding the accumulator may overflow.
    start = aligned(terms.accumulator)
    result = e.v(f"add {word} {total}, {start}")
    if len(terms.factors) << (2 + unit.fraction) < 1 << 31:
        return result, worth, None
    both = (e.v(f"xor {word} {part}, {result}") for part in (total, start))
    turned = e.v(f"icmp slt {word} {e.v(f'and {word} {next(both)}, {next(both)}')}, zeroinitializer")
    return result, worth, turned


def single_to_f32(e: Emitter, unit: Unit, total: str, worth: str) -> str:
    """Bits of a sum cut to f32."""
    kind, word = LANES.of("float"), LANES.int(32)
    size = e.icall(LANES, "abs", 32, total, flag=True)
    unused = e.icall(LANES, "ctlz", 32, size, flag=True)
    drop = e.v(f"sub {word} {LANES.const(32 - unit.significant, 32)}, {unused}")
    drop = e.icall(LANES, "smax", 32, drop, LANES.const(0, 32))
    kept = e.v(f"shl {word} {e.v(f'lshr {word} {size}, {drop}')}, {drop}")
    value = e.v(f"fmul {kind} {e.v(f'sitofp {word} {kept} to {kind}')}, {worth}")
    sign = e.v(f"and {word} {total}, {LANES.const(_SIGN, 32)}")
    return e.v(f"or {word} {e.v(f'bitcast {kind} {value} to {word}')}, {sign}")


def single_to_f16(e: Emitter, total: str, worth: str) -> str:
    """Bits of a sum rounded to f16."""
    double = LANES.of("double")
    wide = e.v(f"sitofp {LANES.int(32)} {total} to {double}")
    return double_to_half(e, LANES, e.v(f"fmul {double} {wide}, {widened(e, worth)}"))


def all_usual(e: Emitter, factors: Sequence[str], accumulators: Sequence[str], kind: str) -> str:
    """Whether single precision serves for all of these floats, a scalar: no infinity, no NaN, and nothing that
    overflows or underflows in between."""
    low, high = _FAST_ACCUMULATOR
    if kind in ("bf16", "tf32"):
        flags = [_within(e, factors, -_FAST_SPAN, _FAST_SPAN), _within(e, accumulators, low, high)]
    else:
        flags = [_within(e, factors, None, 17), _within(e, accumulators, low, 128)]
    usual = e.v(f"and {LANES.int(1)} {flags[0]}, {flags[1]}")
    return e.v(f"icmp eq i{LANES.n} {e.v(f'bitcast {LANES.int(1)} {usual} to i{LANES.n}')}, -1")


def _within(e: Emitter, values: Sequence[str], low: int | None, high: int) -> str:
    """Whether all floats are zero or of magnitude 2**low to below 2**high. Magnitudes are ordered like their bits."""
    word = LANES.int(32)
    sizes = [e.v(f"and {word} {e.from_fp(LANES, value, 'f32')}, {LANES.const(_MAGNITUDE, 32)}") for value in values]
    most = sizes[0]
    for size in sizes[1:]:
        most = e.icall(LANES, "umax", 32, most, size)
    fits = e.v(f"icmp ult {word} {most}, {LANES.const((127 + high) << 23, 32)}")
    if low is None:
        return fits
    less = [e.v(f"sub {word} {size}, {LANES.const(1, 32)}") for size in sizes]  # zero wraps to the greatest
    least = less[0]
    for size in less[1:]:
        least = e.icall(LANES, "umin", 32, least, size)
    large = e.v(f"icmp uge {word} {least}, {LANES.const(((127 + low) << 23) - 1, 32)}")
    return e.v(f"and {LANES.int(1)} {fits}, {large}")


# ---- any operands


def widened(e: Emitter, value: str) -> str:
    return e.v(f"fpext {LANES.of('float')} {value} to {LANES.of('double')}")


def double_power(e: Emitter, value: str, kind: str) -> str:
    """As single_power, for a double."""
    return _power(e, value, SMALLEST[kind], "double", 0x7FF0000000000000)


def double_result(e: Emitter, unit: Unit, terms: Terms, d_type: str) -> str:
    """Bits of the sum of any operands, all of which are doubles here."""
    double, word = LANES.of("double"), LANES.int(64)
    largest = _power(e, terms.accumulator, _ACCUMULATOR_SMALLEST, "double", 0x7FF0000000000000)
    largest = _maximum(e, double, largest, LANES.fconst(2.0**_LEAST, "double"))
    for x, y in terms.powers:
        largest = _maximum(e, double, e.v(f"fmul {double} {x}, {y}"), largest)
    scale = e.v(f"fdiv {double} {LANES.fconst(2.0**unit.fraction, 'double')}, {largest}")
    products = [e.v(f"fmul {double} {x}, {y}") for x, y in terms.factors]
    total = ""
    for term in (terms.accumulator, *products):
        part = e.v(f"fptosi {double} {e.v(f'fmul {double} {term}, {scale}')} to {word}")
        part = e.v(f"freeze {word} {part}")  # the value for an infinity or NaN, which or_special handles
        total = e.v(f"add {word} {total}, {part}") if total else part
    worth = e.v(f"fmul {double} {largest}, {LANES.fconst(2.0**-unit.fraction, 'double')}")
    exact = e.v(f"fmul {double} {e.v(f'sitofp {word} {total} to {double}')}, {worth}")
    if d_type == "f16":
        bits = double_to_half(e, LANES, exact)
    else:
        if unit.significant < 24:
            cut = e.v(f"and {word} {e.from_fp(LANES, exact, 'f64')}, {LANES.const(-1 << (53 - unit.significant), 64)}")
            exact = e.to_fp(LANES, cut, "f64")
        bits = narrow(e, LANES, exact, None, "f64", "f32", "rz")
    return _or_special(e, terms, bits, d_type)


def _or_special(e: Emitter, terms: Terms, bits: str, d_type: str) -> str:
    """The result's bits, or those of an infinity or NaN if an operand is one. In double precision finite operands
    result in neither.
    """
    double, flag = LANES.of("double"), LANES.int(1)
    value = terms.accumulator
    for x, y in terms.factors:
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
