"""A card's quadratic interpolation of an elementary function, bit by bit.

The operand's leading bits choose an interval. The rest of them times a slope, and their square times a bend, are added
to the value at the interval's start. The squarer leaves out the partial products of low weight. The method is Oberman
and Siu's (2005); the tables (interpolation_tables.py) were found from an H200's results."""

from __future__ import annotations

from dataclasses import dataclass

from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.interpolation_tables import Rows
from vgpusim.codegen.lane_value import Form

REST_NBITS = 17
_LOW_NBITS = 9  # of the rest: products of two of these bits have too low a weight for the squarer
_BEND_AT = 18  # the low word of a table's entry is the slope, of 18 bits, and the bend; the high word is the start


@dataclass(frozen=True)
class Interpolator:
    """The function is `(start << 8 + start_shift) + rounding + bend * square + slope * rest`."""

    name: str
    rows: Rows  # start, slope and bend of each interval
    start_shift: int
    rounding: int


def interpolate(f: Emitter, form: Form, table: Interpolator, interval: str, rest: str, dropped: int) -> str:
    """The function without its last `dropped` bits, at least 8; `interval` and `rest` are i32, the rest of 17 bits."""
    word = form.int(32)
    high, low = parts(f, form, table, interval, rest)
    low = f.v(f"ashr {word} {low}, {form.const(8, 32)}")
    return f.v(f"lshr {word} {f.v(f'add {word} {high}, {low}')}, {form.const(dropped - 8, 32)}")


def parts(f: Emitter, form: Form, table: Interpolator, interval: str, rest: str) -> tuple[str, str]:
    """The function as two i32: 256 times the first, and the second. The sum has up to 41 bits."""
    word = form.int(32)

    def op(operation: str, a: str, b: str | int) -> str:
        return f.v(f"{operation} {word} {a}, {form.const(b, 32) if isinstance(b, int) else b}")

    start, both = _entry(f, form, table, interval)
    slope_high = op("ashr", op("shl", both, 32 - _BEND_AT), 32 - _BEND_AT + 8)
    slope_low, bend = op("and", both, 255), op("ashr", both, _BEND_AT)
    low = op("add", op("mul", bend, _square(f, form, rest)), table.rounding)
    return op("add", start, op("mul", slope_high, rest)), op("add", low, op("mul", slope_low, rest))


def _square(f: Emitter, form: Form, rest: str) -> str:
    """The square of the rest in units of 2**19: each pair of equal products is folded into one, and those of less are
    left out."""
    word, half = form.int(32), form.int(16)

    def op(operation: str, a: str, b: str | int) -> str:
        return f.v(f"{operation} {half} {a}, {form.const(b, 16) if isinstance(b, int) else b}")

    high = f.v(f"trunc {word} {f.v(f'lshr {word} {rest}, {form.const(_LOW_NBITS, 32)}')} to {half}")
    low = op("and", f.v(f"trunc {word} {rest} to {half}"), (1 << _LOW_NBITS) - 1)
    square = op("lshr", op("mul", high, high), 1)
    for bit in range(1, REST_NBITS - _LOW_NBITS):
        absent = f.v(f"icmp eq {half} {op('and', high, 1 << bit)}, {form.const(0, 16)}")
        part = op("lshr", low, _LOW_NBITS - bit)
        part = f.v(f"select {form.int(1)} {absent}, {half} {form.const(0, 16)}, {half} {part}")
        square = op("add", square, part)
    return f.v(f"zext {half} {square} to {word}")


def _entry(f: Emitter, form: Form, table: Interpolator, interval: str) -> tuple[str, str]:
    """The start, shifted for the sum, and the slope and bend of each lane's interval."""
    word, wide = form.int(32), form.int(64)
    name = f"@interpolator.{table.name}"
    entries = [
        start << 32 + table.start_shift | bend % (1 << 32 - _BEND_AT) << _BEND_AT | slope % (1 << _BEND_AT)
        for start, slope, bend in table.rows
    ]
    listed = f.constants(64, entries)[1:-1]
    f.helper(name, f"{name} = private constant [{len(entries)} x i64] [{listed}], align 64\n")
    at = f.v(f"getelementptr i64, ptr {name}, {word} {interval}")
    if not form.vector:
        entry = f.v(f"load i64, ptr {at}, align 8")
        high = f.v(f"trunc i64 {f.v(f'lshr i64 {entry}, 32')} to i32")
        return high, f.v(f"trunc i64 {entry} to i32")
    pointers, lanes = form.of("ptr"), Form(2 * form.n).int(32)
    call = f.call(
        wide, f"llvm.masked.gather.{form.suffix('i64')}.v{form.n}p0", (pointers, at), ("i32", "8"),
        (form.int(1), form.const(1, 1)), (wide, "poison"),
    )  # fmt: skip
    halves = f.v(f"bitcast {wide} {f.v(call)} to {lanes}")
    odd, even = (", ".join(f"i32 {2 * k + place}" for k in range(form.n)) for place in (1, 0))
    high, low = (
        f.v(f"shufflevector {lanes} {halves}, {lanes} poison, <{form.n} x i32> <{order}>") for order in (odd, even)
    )
    return high, low
