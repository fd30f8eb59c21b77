"""rcp.approx, div.approx and div.full of f32 with an H200's bits.

They have an H200's results (580.159.04) for every f32 in [1, 2) (`tests/gpu/oracle.py`, 2026-11-29)."""

from __future__ import annotations

from vgpusim.codegen.emit_float import flush
from vgpusim.codegen.emit_interpolate import Interpolator, interpolate
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.interpolation_tables import RECIPROCAL
from vgpusim.codegen.lane_value import Form

_TABLE = Interpolator("reciprocal", RECIPROCAL, start_shift=6, rounding=4046)
_INFINITY, _NAN = 0x7F800000, 0x7FFFFFFF


def quotient(e: Emitter, form: Form, a: str, b: str, full: bool, ftz: bool) -> str:
    """a / b: the product with the reciprocal, after both were scaled. div.approx scales small divisors alone, so that
    one above 2**126 gives 0; subnormal divisors are zeros already where `ftz` is set."""
    kind = form.of("float")
    size, scale = e.fcall(form, "fabs", "float", b), form.fconst(1.0, "float")
    limits = [("olt", 2.0**-126, 2.0**24)] if not ftz else []
    limits += [("ogt", 2.0**126, 0.25)] if full else []
    for relation, limit, factor in limits:
        beyond = e.v(f"fcmp {relation} {kind} {size}, {form.fconst(limit, 'float')}")
        scale = e.v(f"select {form.int(1)} {beyond}, {kind} {form.fconst(factor, 'float')}, {kind} {scale}")
    if limits:
        a, b = (e.v(f"fmul {kind} {x}, {scale}") for x in (a, b))
        if ftz:
            a = e.to_fp(form, flush(e, form, e.from_fp(form, a, "f32")), "f32")
    return e.v(f"fmul {kind} {a}, {_table_value(e, form, b)}")


def reciprocal(e: Emitter, form: Form, x: str, ftz: bool) -> str:
    """1 / x. Without .ftz what the table has no result for is scaled first, and the result likewise."""
    if ftz:
        return _table_value(e, form, x)
    kind = form.of("float")
    size, scale = e.fcall(form, "fabs", "float", x), form.fconst(1.0, "float")
    for relation, limit, factor in (("olt", 2.0**-126, 2.0**24), ("oge", 2.0**126, 0.25)):
        beyond = e.v(f"fcmp {relation} {kind} {size}, {form.fconst(limit, 'float')}")
        scale = e.v(f"select {form.int(1)} {beyond}, {kind} {form.fconst(factor, 'float')}, {kind} {scale}")
    return e.v(f"fmul {kind} {_table_value(e, form, e.v(f'fmul {kind} {x}, {scale}'))}, {scale}")


def _table_value(e: Emitter, form: Form, x: str) -> str:
    """The table's reciprocal; subnormal operands and results are zeros."""
    name, kind = f"reciprocal.{form.suffix('f32')}", form.of("float")
    if name not in e.helpers:
        e.helper(name, _function(e, form, name))
    return e.v(f"call {kind} @{name}({kind} {x})")


def _function(e: Emitter, form: Form, name: str) -> str:
    f = Emitter(e.state, e.flush_by_mxcsr)
    kind, word, flag = form.of("float"), form.int(32), form.int(1)

    def number(value: int) -> str:
        return form.const(value, 32)

    def op(operation: str, a: str, b: str | int) -> str:
        return f.v(f"{operation} {word} {a}, {number(b) if isinstance(b, int) else b}")

    bits = f.from_fp(form, "%x", "f32")
    exponent = op("and", op("lshr", bits, 23), 255)
    rest = op("and", op("shl", bits, 1), 0x1FFFF)
    mantissa = interpolate(f, form, _TABLE, op("and", op("lshr", bits, 16), 127), rest, 16)
    result = op("add", op("shl", op("sub", number(253), exponent), 23), mantissa)
    small = f.v(f"icmp slt {word} {result}, {number(0x800000)}")  # infinite operands, too
    result = f.v(f"select {flag} {small}, {word} {number(0)}, {word} {result}")
    zero = f.v(f"icmp eq {word} {exponent}, {number(0)}")
    result = f.v(f"select {flag} {zero}, {word} {number(_INFINITY)}, {word} {result}")
    result = op("or", result, op("and", bits, 1 << 31))
    nan = f.v(f"fcmp uno {kind} %x, %x")
    result = f.v(f"select {flag} {nan}, {word} {number(_NAN)}, {word} {result}")
    f.e(f"ret {kind} {f.to_fp(form, result, 'f32')}")
    e.declarations |= f.declarations
    e.helpers |= f.helpers
    body = "\n".join(f.lines)
    return f"define internal {kind} @{name}({kind} %x) noinline #0 {{\n{body}\n}}\n"
