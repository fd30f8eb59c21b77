"""Sums of products as a tensor core makes them.

The exact products and the accumulator are aligned to the greatest exponent among them, cut after some bits of fraction,
and added as integers; the sum is cut to f32, or rounded to f16. A product's exponent is the sum of its factors', so its
significand may be up to 4; a subnormal factor has the smallest exponent of its type, and a product or accumulator that
is zero takes no part in the alignment. Hopper keeps 25 bits and takes 32 bytes of k at once; in wgmma of 8-bit floats
it keeps 13 bits, and a sum has 14 bits. Source: the published bit-accurate models of tensor cores (Fasi et al. 2021,
"Numerical behavior of NVIDIA tensor cores"; Xie et al. 2025, "MMA-Sim"); tests/vgpusim/codegen/test_card_tensor.py
compares with an H200.

Usual operands, neither infinite nor NaN nor of extreme exponents, are multiplied in f32 and added in 32 bits; others in
f64 and 64 bits. The exponents of usual factors are bytes, so that one instruction handles those of four k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgpusim.codegen import native
from vgpusim.codegen.emit_convert import double_to_half
from vgpusim.codegen.emit_rounding import narrow
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import Form

FORM = Form(16)  # sums at once: a 512-bit vector of f32
SPAN = 50  # in single precision, factors are zero or of magnitude 2**-50 to 2**50
SMALLEST = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14}  # exponents
_BYTES = Form(4 * FORM.n)
_ACCUMULATOR_SMALLEST = {"f16": -14, "f32": -126}
_FAST_ACCUMULATOR = -76  # and accumulators at least of this exponent
_FAST_LEAST = -101  # below the exponent of any product or accumulator in single precision
_LEAST = -300  # the same in double precision
_BIAS = 127
_MAGNITUDE, _INFINITY = (1 << 31) - 1, 0x7F800000
_TO_ZERO = 8 | 3  # AVX-512's rounding mode of one instruction

Factors = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Unit:
    """What a kind of tensor core keeps: bits of fraction of the aligned terms, significant bits of an f32 result."""

    fraction: int
    significant: int


WIDE, NARROW = Unit(25, 24), Unit(13, 14)


@dataclass(frozen=True, slots=True)
class Flags:
    """What tells whether single precision served, of all sums so far, i32: the greatest exponent, the least magnitude
    of an accumulator, less one, and the greatest sum of products, from the least that is allowed."""

    greatest: str
    least: str
    furthest: str


@dataclass(frozen=True, slots=True)
class Terms:
    """The factors of the products of one sum; the accumulator. All f64."""

    factors: Factors
    powers: Factors  # powers of two of the factors' exponents
    accumulator: str
    kind: str  # the accumulator's type


# ---- usual operands


def greatest(e: Emitter, pairs: Factors) -> str:
    """The greatest exponent of products, as the exponent of an f32, below other bits. `pairs`: four exponents
    of A's factors in each lane, and of B's (emit_fragment)."""
    word, octets = FORM.int(32), _BYTES.int(8)
    most = _BYTES.const(_BIAS + _FAST_LEAST, 8)
    for x, y in pairs:
        a, b = (e.v(f"bitcast {word} {v} to {octets}") for v in (x, y))
        most = e.icall(_BYTES, "umax", 8, most, e.icall(_BYTES, "usub.sat", 8, a, b))
    for shift in (16, 8):
        bits = e.v(f"bitcast {octets} {most} to {word}")
        moved = e.v(f"bitcast {word} {e.v(f'shl {word} {bits}, {FORM.const(shift, 32)}')} to {octets}")
        most = e.icall(_BYTES, "umax", 8, most, moved)
    return e.v(f"lshr {word} {e.v(f'bitcast {octets} {most} to {word}')}, {FORM.const(1, 32)}")


def single_sum(
    e: Emitter, unit: Unit, factors: Factors, most: str, accumulator: str, kind: str, flags: Flags
) -> tuple[str, str, Flags]:
    """The sum of usual operands, i32; the value of its lowest bit, f32; new flags. `most`: greatest(); `kind`: the
    accumulator's type."""
    single, word = FORM.of("float"), FORM.int(32)
    size = e.v(f"and {word} {e.from_fp(FORM, accumulator, 'f32')}, {FORM.const(_MAGNITUDE, 32)}")
    if kind == "f16":  # a subnormal has the exponent of the smallest normal number
        zero = e.v(f"icmp eq {word} {size}, {FORM.const(0, 32)}")
        smallest = FORM.const((_BIAS + _ACCUMULATOR_SMALLEST[kind]) << 23, 32)
        size = e.v(f"select {FORM.int(1)} {zero}, {word} {size}, {word} {e.icall(FORM, 'umax', 32, size, smallest)}")
    # The accumulator comes last: it may be the previous sum, and work without it need not wait for that sum.
    exponent = e.v(f"and {word} {e.icall(FORM, 'umax', 32, most, size)}, {FORM.const(_INFINITY, 32)}")
    scale = e.v(f"sub {word} {FORM.const((2 * _BIAS + unit.fraction) << 23, 32)}, {exponent}")
    scale = e.v(f"bitcast {word} {scale} to {single}")
    worth = e.v(f"sub {word} {exponent}, {FORM.const(unit.fraction << 23, 32)}")
    worth = e.v(f"bitcast {word} {worth} to {single}")

    def aligned(value: str) -> str:
        return e.v(f"fptosi {single} {e.v(f'fmul {single} {value}, {scale}')} to {word}")

    total = ""
    for x, y in factors:
        part = aligned(e.v(f"fmul {single} {x}, {y}"))
        total = e.v(f"add {word} {total}, {part}") if total else part
    start = aligned(accumulator)
    result = e.v(f"add {word} {total}, {start}")
    furthest = flags.furthest
    # A product is below 4 * 2**fraction: the sum of 16 fits 31 bits, but adding the accumulator may overflow.
    if len(factors) << (2 + unit.fraction) >= 1 << 31:
        moved = e.v(f"add {word} {total}, {FORM.const(_total_limit(unit), 32)}")
        furthest = e.icall(FORM, "umax", 32, furthest, moved)
    less = e.v(f"sub {word} {size}, {FORM.const(1, 32)}")  # zero wraps to the greatest
    least = e.icall(FORM, "umin", 32, flags.least, less)
    return result, worth, Flags(e.icall(FORM, "umax", 32, flags.greatest, exponent), least, furthest)


def _total_limit(unit: Unit) -> int:
    """The greatest sum of products to which any accumulator can be added."""
    return (1 << 31) - (1 << (1 + unit.fraction))


NO_FLAGS = Flags(FORM.const(0, 32), FORM.const(-1, 32), FORM.const(0, 32))


def served(e: Emitter, flags: Flags) -> str:
    """Whether single precision served for all sums, a scalar."""
    word, flag = FORM.int(32), FORM.int(1)
    finite = e.v(f"icmp ult {word} {flags.greatest}, {FORM.const(_INFINITY, 32)}")
    large = e.v(f"icmp uge {word} {flags.least}, {FORM.const(((_BIAS + _FAST_ACCUMULATOR) << 23) - 1, 32)}")
    fits = e.v(f"icmp ule {word} {flags.furthest}, {FORM.const(2 * _total_limit(WIDE), 32)}")
    usual = e.v(f"and {flag} {e.v(f'and {flag} {finite}, {large}')}, {fits}")
    return e.v(f"icmp eq i{FORM.n} {e.v(f'bitcast {flag} {usual} to i{FORM.n}')}, -1")


def single_bits(e: Emitter, unit: Unit, total: str, worth: str, kind: str) -> str:
    """Bits of a sum cut to f32, or rounded to f16."""
    single, double, word = FORM.of("float"), FORM.of("double"), FORM.int(32)
    if kind == "f16":
        wide = e.v(f"sitofp {word} {total} to {double}")
        return _half(e, e.v(f"fmul {double} {wide}, {widened(e, worth)}"))
    if unit.significant < 24:  # few enough terms and bits for an exact f32
        bits = e.from_fp(FORM, e.v(f"sitofp {word} {total} to {single}"), "f32")
        value = e.to_fp(FORM, e.v(f"and {word} {bits}, {FORM.const(-1 << (24 - unit.significant), 32)}"), "f32")
    elif native.has_own_rounding():
        value = e.v(e.call(single, "llvm.x86.avx512.sitofp.round.v16f32.v16i32", (word, total), ("i32", str(_TO_ZERO))))
    else:
        bits = e.from_fp(FORM, e.v(f"sitofp {word} {total} to {double}"), "f64")
        cut = e.to_fp(FORM, e.v(f"and {FORM.int(64)} {bits}, {FORM.const(-1 << 29, 64)}"), "f64")
        value = e.v(f"fptrunc {double} {cut} to {single}")
    return e.from_fp(FORM, e.v(f"fmul {single} {value}, {worth}"), "f32")


# ---- any operands


def widened(e: Emitter, value: str) -> str:
    return e.v(f"fpext {FORM.of('float')} {value} to {FORM.of('double')}")


def power(e: Emitter, value: str, smallest: int) -> str:
    """2 to the exponent of a double, no less than 2**smallest; 0 of zero."""
    kind, word = FORM.of("double"), FORM.int(64)
    bits = e.v(f"bitcast {kind} {value} to {word}")
    alone = e.v(f"bitcast {word} {e.v(f'and {word} {bits}, {FORM.const(0x7FF0000000000000, 64)}')} to {kind}")
    larger = _maximum(e, alone, FORM.fconst(2.0**smallest, "double"))
    zero = e.v(f"fcmp oeq {kind} {value}, {FORM.fconst(0.0, 'double')}")
    return e.v(f"select {FORM.int(1)} {zero}, {kind} {FORM.fconst(0.0, 'double')}, {kind} {larger}")


def _maximum(e: Emitter, a: str, b: str) -> str:
    kind = FORM.of("double")
    return e.v(f"select {FORM.int(1)} {e.v(f'fcmp ogt {kind} {a}, {b}')}, {kind} {a}, {kind} {b}")


def double_bits(e: Emitter, unit: Unit, terms: Terms, d_type: str) -> str:
    """Bits of the sum of any operands."""
    double, word = FORM.of("double"), FORM.int(64)
    largest = power(e, terms.accumulator, _ACCUMULATOR_SMALLEST[terms.kind])
    largest = _maximum(e, largest, FORM.fconst(2.0**_LEAST, "double"))
    for x, y in terms.powers:
        largest = _maximum(e, e.v(f"fmul {double} {x}, {y}"), largest)
    scale = e.v(f"fdiv {double} {FORM.fconst(2.0**unit.fraction, 'double')}, {largest}")
    products = [e.v(f"fmul {double} {x}, {y}") for x, y in terms.factors]
    total = ""
    for term in (terms.accumulator, *products):
        part = e.v(f"fptosi {double} {e.v(f'fmul {double} {term}, {scale}')} to {word}")
        part = e.v(f"freeze {word} {part}")  # the value for an infinity or NaN, which or_special handles
        total = e.v(f"add {word} {total}, {part}") if total else part
    worth = e.v(f"fmul {double} {largest}, {FORM.fconst(2.0**-unit.fraction, 'double')}")
    exact = e.v(f"fmul {double} {e.v(f'sitofp {word} {total} to {double}')}, {worth}")
    if d_type == "f16":
        bits = _half(e, exact)
    else:
        if unit.significant < 24:
            cut = e.v(f"and {word} {e.from_fp(FORM, exact, 'f64')}, {FORM.const(-1 << (53 - unit.significant), 64)}")
            exact = e.to_fp(FORM, cut, "f64")
        bits = _cut(e, exact)
    return _or_special(e, terms, bits, d_type)


def _half(e: Emitter, exact: str) -> str:
    """Bits of a double rounded to f16; a zero is positive."""
    bits, word = double_to_half(e, FORM, exact), FORM.int(16)
    zero = e.v(f"icmp eq {word} {bits}, {FORM.const(1 << 15, 16)}")
    return e.v(f"select {FORM.int(1)} {zero}, {word} {FORM.const(0, 16)}, {word} {bits}")


def _cut(e: Emitter, exact: str) -> str:
    """Bits of a double cut to f32: an infinity if it is beyond every f32; a zero is positive."""
    double, word, flag = FORM.of("double"), FORM.int(32), FORM.int(1)
    bits = narrow(e, FORM, exact, None, "f64", "f32", "rz")
    beyond = e.v(f"fcmp oge {double} {e.fcall(FORM, 'fabs', 'double', exact)}, {FORM.fconst(2.0**128, 'double')}")
    sign = e.v(f"and {word} {bits}, {FORM.const(1 << 31, 32)}")
    zero = e.v(f"icmp eq {word} {bits}, {sign}")
    bits = e.v(f"select {flag} {zero}, {word} {FORM.const(0, 32)}, {word} {bits}")
    infinity = e.v(f"or {word} {sign}, {FORM.const(_INFINITY, 32)}")
    return e.v(f"select {flag} {beyond}, {word} {infinity}, {word} {bits}")


def rounded_sum(e: Emitter, x: str, y: str, kind: str) -> str:
    """Bits of the sum of two floats, rounded to nearest; both have values of `kind`. An f32 sum of two f16 rounds
    to f16 as the exact sum does, since it has more than twice as many bits."""
    total = e.v(f"fadd {FORM.of('float')} {x}, {y}")
    if kind == "f16":
        total = e.v(f"fptrunc {FORM.of('float')} {total} to {FORM.of('half')}")
    return e.canonical_nan(FORM, e.from_fp(FORM, total, kind), kind)


def _or_special(e: Emitter, terms: Terms, bits: str, d_type: str) -> str:
    """The result's bits, or those of an infinity or NaN if an operand is one. In double precision the sum
    of finite operands is neither.
    """
    double, flag = FORM.of("double"), FORM.int(1)
    value = terms.accumulator
    for x, y in terms.factors:
        value = e.fcall(FORM, "fma", "double", x, y, value)
    nbits, infinity, nan = (16, 0x7C00, 0x7FFF) if d_type == "f16" else (32, 0x7F800000, 0x7FFFFFFF)
    kind = FORM.int(nbits)
    size = e.fcall(FORM, "fabs", "double", value)
    limitless = e.v(f"fcmp oeq {double} {size}, {FORM.fconst(float('inf'), 'double')}")
    negative = e.v(f"fcmp olt {double} {value}, {FORM.fconst(0.0, 'double')}")
    signed = e.v(f"select {flag} {negative}, {kind} {FORM.const(infinity | 1 << (nbits - 1), nbits)}, "
                 f"{kind} {FORM.const(infinity, nbits)}")  # fmt: skip
    bits = e.v(f"select {flag} {limitless}, {kind} {signed}, {kind} {bits}")
    unordered = e.v(f"fcmp uno {double} {value}, {value}")
    return e.v(f"select {flag} {unordered}, {kind} {FORM.const(nan, nbits)}, {kind} {bits}")
