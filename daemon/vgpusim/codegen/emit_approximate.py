"""rsqrt, sqrt, ex2, lg2, sin and cos .approx of f32, and ex2 of f16 and bf16, with an H200's bits.

The card's functions flush subnormals; what PTX has without .ftz scales the operand of one and its result. Every operand
has a card's result (580.159.04, 2026-11-30)."""

from __future__ import annotations

from collections.abc import Callable

from vgpusim.codegen.emit_interpolate import Interpolator, interpolate, parts
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.interpolation_tables import LOGARITHM, POWER, RECIPROCAL_ROOT, ROOT, SINE
from vgpusim.codegen.lane_value import Form

_INFINITY, _NAN = 0x7F800000, 0x7FFFFFFF
_REST, _MANTISSA = 0x1FFFF, 0x7FFFFF
_TURN = float.fromhex("0x1.45f306p-3")  # f32, below 1 / (2 * pi)
_RECIPROCAL_ROOT = Interpolator("rsqrt", RECIPROCAL_ROOT, start_shift=6, rounding=16383)  # all of 2**-40
_ROOT = Interpolator("sqrt", ROOT, start_shift=6, rounding=32767)
_POWER = Interpolator("ex2", POWER, start_shift=6, rounding=12228)
_LOGARITHM = Interpolator("lg2", LOGARITHM, start_shift=4, rounding=837)  # of 2**-38
_SINE = Interpolator("sin", SINE, start_shift=3, rounding=0)  # of 2**-37


def approximate(e: Emitter, form: Form, name: str, x: str, ftz: bool) -> str:
    """The function of a float, a float."""
    kind = form.of("float")
    if ftz or name in ("sin", "cos"):
        return _call(e, form, name, x)
    one = form.fconst(1.0, "float")

    def chosen(small: str, factor: float, other: str) -> str:
        return e.v(f"select {form.int(1)} {small}, {kind} {form.fconst(factor, 'float')}, {kind} {other}")

    if name == "ex2":
        small = e.v(f"fcmp olt {kind} {x}, {form.fconst(-126.0, 'float')}")
        value = _call(e, form, name, e.v(f"fmul {kind} {x}, {chosen(small, 0.5, one)}"))
        return e.v(f"fmul {kind} {value}, {e.v(f'select {form.int(1)} {small}, {kind} {value}, {kind} {one}')}")
    size = e.fcall(form, "fabs", "float", x)
    small = e.v(f"fcmp olt {kind} {size}, {form.fconst(2.0**-126, 'float')}")
    value = _call(e, form, name, e.v(f"fmul {kind} {x}, {chosen(small, 2.0**24, one)}"))
    if name == "lg2":
        return e.v(f"fsub {kind} {value}, {chosen(small, 24.0, form.fconst(0.0, 'float'))}")
    return e.v(f"fmul {kind} {value}, {chosen(small, 2.0**12 if name == 'rsqrt' else 2.0**-12, one)}")


def short_power(e: Emitter, form: Form, x: str, kind: str) -> str:
    """ex2 of f16 or bf16 as a float: it is rounded to zero, but above the greatest f16 to infinity."""
    single, word = form.of("float"), form.int(32)
    value = _call(e, form, "ex2", x)
    mask = form.const(-1 << (13 if kind == "f16" else 16), 32)
    bits = e.v(f"and {word} {e.from_fp(form, value, 'f32')}, {mask}")
    rounded = e.to_fp(form, bits, "f32")
    if kind == "bf16":
        return rounded
    scaled = e.v(f"fmul {single} {value}, {form.fconst(2.0**24, 'float')}")
    subnormal = e.v(f"fmul {single} {e.fcall(form, 'floor', 'float', scaled)}, {form.fconst(2.0**-24, 'float')}")
    small = e.v(f"fcmp olt {single} {value}, {form.fconst(2.0**-14, 'float')}")
    return e.v(f"select {form.int(1)} {small}, {single} {subnormal}, {single} {rounded}")


def _call(e: Emitter, form: Form, name: str, x: str) -> str:
    kind = form.of("float")
    function = f"approximate.{name}.{form.suffix('f32')}"
    if function not in e.helpers:
        inner = _Function(e, form)
        value = _FUNCTIONS[name](inner)
        lines = "\n".join((*inner.f.lines, f"  ret {kind} {value}"))
        e.helper(function, f"define internal {kind} @{function}({kind} %x) noinline #0 {{\n{lines}\n}}\n")
        e.declarations |= inner.f.declarations
        e.helpers |= inner.f.helpers
    return e.v(f"call {kind} @{function}({kind} {x})")


class _Function:
    """The body of a function of %x, and what all of them need."""

    def __init__(self, e: Emitter, form: Form) -> None:
        self.f, self.form = Emitter(e.state, e.flush_by_mxcsr), form
        self.float, self.double, self.word = form.of("float"), form.of("double"), form.int(32)
        self.bits = self.f.from_fp(form, "%x", "f32")
        self.exponent = self.op("and", self.op("lshr", self.bits, 23), 255)

    def op(self, operation: str, a: str | int, b: str | int) -> str:
        first, second = (self.form.const(x, 32) if isinstance(x, int) else x for x in (a, b))
        return self.f.v(f"{operation} {self.word} {first}, {second}")

    def fp(self, operation: str, a: str, b: float | str, element: str = "float") -> str:
        second = b if isinstance(b, str) else self.form.fconst(b, element)
        return self.f.v(f"{operation} {self.form.of(element)} {a}, {second}")

    def select(self, flag: str, a: str | int, b: str) -> str:
        first = self.form.const(a, 32) if isinstance(a, int) else a
        return self.f.v(f"select {self.form.int(1)} {flag}, {self.word} {first}, {self.word} {b}")

    def size(self) -> str:
        return self.f.fcall(self.form, "fabs", "float", "%x")

    def finish(self, result: str, nan: str | None = None) -> str:
        """The result, or NaN where `nan` or the operand is one."""
        result = self.select(nan or self.fp("fcmp uno", "%x", "%x"), _NAN, result)
        return self.f.to_fp(self.form, result, "f32")

    def truncated(self, value: str, unit: float) -> str:
        """The bits of a double times `unit` as a float, without the digits that do not fit."""
        f, wide = self.f, self.form.int(64)
        bits = f.v(f"bitcast {self.double} {self.fp('fmul', value, unit, 'double')} to {wide}")
        bits = f.v(f"and {wide} {bits}, {self.form.const(-1 << 29, 64)}")
        short = f.v(f"fptrunc {self.double} {f.v(f'bitcast {wide} {bits} to {self.double}')} to {self.float}")
        return f.from_fp(self.form, short, "f32")

    def whole(self, table: Interpolator, fraction: str) -> str:
        """A table's value of a fraction of 23 bits, as a double."""
        high, low = parts(self.f, self.form, table, self.op("lshr", fraction, 17), self.op("and", fraction, _REST))
        high, low = (self.f.v(f"sitofp {self.word} {x} to {self.double}") for x in (high, low))
        return self.fp("fadd", self.fp("fmul", high, 256.0, "double"), low, "double")


def _root(g: _Function, table: Interpolator, dropped: int) -> tuple[str, str]:
    """The mantissa, and half of the exponent."""
    interval = g.op("xor", g.op("and", g.op("lshr", g.bits, 17), 127), 64)
    mantissa = interpolate(g.f, g.form, table, interval, g.op("and", g.bits, _REST), dropped)
    return mantissa, g.op("lshr", g.op("add", g.exponent, 1), 1)


def _reciprocal_root(g: _Function) -> str:
    mantissa, half = _root(g, _RECIPROCAL_ROOT, 16)
    even = g.op("icmp eq", g.op("and", g.bits, 0xFFFFFF), 0x800000)  # powers of 4
    mantissa = g.select(even, 1 << 23, mantissa)
    result = g.op("add", g.op("shl", g.op("sub", 190, half), 23), mantissa)
    result = g.select(g.op("icmp eq", g.exponent, 255), 0, result)
    infinite = g.op("or", g.op("and", g.bits, 1 << 31), _INFINITY)
    result = g.select(g.op("icmp eq", g.exponent, 0), infinite, result)
    return g.finish(result, _negative(g))


def _square_root(g: _Function) -> str:
    mantissa, half = _root(g, _ROOT, 17)
    result = g.op("add", g.op("shl", g.op("add", half, 63), 23), mantissa)
    result = g.select(g.op("icmp eq", g.exponent, 255), _INFINITY, result)
    result = g.select(g.op("icmp eq", g.exponent, 0), g.op("and", g.bits, 1 << 31), result)
    return g.finish(result, _negative(g))


def _negative(g: _Function) -> str:
    """Whether the operand is NaN or a normal number below zero."""
    return g.op("icmp ugt", g.select(g.op("icmp eq", g.exponent, 0), 0, g.bits), _INFINITY)


def _power(g: _Function) -> str:
    size = g.f.fcall(g.form, "minnum", "float", g.size(), g.form.fconst(200.0, "float"))
    fixed = g.f.v(f"fptosi {g.float} {g.fp('fmul', size, 2.0**23)} to {g.word}")
    negative = g.op("icmp slt", g.bits, 0)
    exact = g.op("icmp eq", g.op("and", fixed, _MANTISSA), 0)
    below = g.select(exact, g.op("sub", 0, fixed), g.op("xor", fixed, -1))
    fixed = g.select(negative, below, fixed)
    interval = g.op("and", g.op("lshr", fixed, 17), 63)
    mantissa = interpolate(g.f, g.form, _POWER, interval, g.op("and", fixed, _REST), 16)
    power = g.op("ashr", fixed, 23)
    result = g.op("add", g.op("shl", g.op("add", power, 127), 23), mantissa)
    result = g.select(g.op("icmp sgt", power, 127), _INFINITY, result)
    return g.finish(g.select(g.op("icmp slt", power, -126), 0, result))


def _logarithm(g: _Function) -> str:
    value = g.fp("fmul", g.whole(_LOGARITHM, g.op("and", g.bits, _MANTISSA)), 0.25, "double")
    value = g.f.fcall(g.form, "floor", "double", value)  # in units of 2**-36
    power = g.f.v(f"sitofp {g.word} {g.op('sub', g.exponent, 127)} to {g.double}")
    value = g.fp("fadd", value, g.fp("fmul", power, 2.0**36, "double"), "double")
    below = g.fp("fcmp olt", value, 0.0, "double")
    change = g.f.v(
        f"select {g.form.int(1)} {below}, {g.double} {g.form.fconst(1.0, 'double')}, "
        f"{g.double} {g.form.fconst(0.0, 'double')}"
    )
    result = g.truncated(g.fp("fadd", value, change, "double"), 2.0**-36)
    result = g.select(g.op("icmp eq", g.bits, 0x3F800000), 0, result)
    result = g.select(g.op("icmp eq", g.exponent, 255), _INFINITY, result)
    result = g.select(g.op("icmp eq", g.exponent, 0), _INFINITY | 1 << 31, result)
    return g.finish(result, _negative(g))


def _sine(g: _Function, quarters: int) -> str:
    """The sine, or with a quarter more the cosine; the product with 1 / (2 * pi) is rounded to zero."""
    form, turn = g.form, g.form.fconst(_TURN, "float")
    size = g.size()
    product = g.fp("fmul", size, turn)
    error = g.f.fcall(form, "fma", "float", size, turn, g.f.v(f"fneg {g.float} {product}"))
    above = g.fp("fcmp olt", error, 0.0)
    bits = g.f.from_fp(form, product, "f32")
    product = g.f.to_fp(form, g.select(above, g.op("sub", bits, 1), bits), "f32")
    part = g.fp("fsub", product, g.f.fcall(form, "floor", "float", product))
    part = g.f.fcall(form, "maxnum", "float", part, form.fconst(0.0, "float"))  # of infinity there is none
    turned = g.f.v(f"fptosi {g.float} {g.fp('fmul', part, 2.0**25)} to {g.word}")
    quarter = g.op("add", g.op("lshr", turned, 23), quarters)
    odd = g.op("sub", 0, g.op("and", quarter, 1))
    fraction = g.op("and", g.op("xor", turned, odd), _MANTISSA)
    result = g.truncated(g.whole(_SINE, fraction), 2.0**-37)
    sign = g.op("shl", quarter, 30) if quarters else g.op("xor", g.op("shl", quarter, 30), g.bits)
    result = g.op("or", result, g.op("and", sign, 1 << 31))
    return g.finish(result, g.op("icmp eq", g.exponent, 255))


_FUNCTIONS: dict[str, Callable[[_Function], str]] = {
    "rsqrt": _reciprocal_root, "sqrt": _square_root, "ex2": _power, "lg2": _logarithm,
    "sin": lambda g: _sine(g, 0), "cos": lambda g: _sine(g, 1),
}  # fmt: skip
