"""Directed rounding (.rz .rm .rp) without touching the CPU's rounding mode: the nearest result, then one step towards
the exact one when an error term says it lies on the wrong side."""

from __future__ import annotations

from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import FP_NAMES, Form
from vgpusim.ptx import ir


def directed(e: Emitter, form: Form, name: str, kind: str, values: list[str], mode: str) -> str:
    """Bits of op(values) rounded towards zero, minus or plus infinity. `values` are LLVM floats of `kind`."""
    if kind == "f64":
        return _native(e, form, name, "double", values, mode, kind)
    if kind != "f32":
        raise e.unsupported("directed rounding of this type")
    wide = [e.v(f"fpext {form.of('float')} {v} to {form.of('double')}") for v in values]
    if name in ("fma", "mad"):  # the product is exact in double; the sum has an error term
        product = e.v(f"fmul {form.of('double')} {wide[0]}, {wide[1]}")
        total, error = two_sum(e, form, "double", product, wide[2])
    elif name in ("add", "sub"):
        other = wide[1] if name == "add" else e.v(f"fneg {form.of('double')} {wide[1]}")
        total, error = two_sum(e, form, "double", wide[0], other)
    elif name == "mul":
        total, error = e.v(f"fmul {form.of('double')} {wide[0]}, {wide[1]}"), None
    elif name == "div":
        total = e.v(f"fdiv {form.of('double')} {wide[0]}, {wide[1]}")
        error = _quotient_error(e, form, "double", total, wide)
    elif name == "sqrt":
        total = e.fcall(form, "sqrt", "double", wide[0])
        error = e.fcall(form, "fma", "double", e.v(f"fneg {form.of('double')} {total}"), total, wide[0])
    else:
        raise e.unsupported("directed rounding")
    return narrow(e, form, total, error, "f64", "f32", mode)


def narrow(e: Emitter, form: Form, value: str, error: str | None, source: str, to: str, mode: str) -> str:
    """Bits of value + error (error smaller than half an ulp of value) converted to a narrower type, directed."""
    wide, small = form.of(FP_NAMES[source]), form.of(FP_NAMES[to])
    near = e.v(f"fptrunc {wide} {value} to {small}")
    back = e.v(f"fpext {small} {near} to {wide}")
    # exact - back has the sign of (value - back), or of the error where that is zero
    difference = e.v(f"fsub {wide} {value}, {back}")
    if error is not None:
        zero = e.v(f"fcmp oeq {wide} {difference}, {form.fconst(0.0, FP_NAMES[source])}")
        difference = e.v(f"select {form.int(1)} {zero}, {wide} {error}, {wide} {difference}")
    overflowed = e.v(f"fcmp oeq {wide} {e.fcall(form, 'fabs', FP_NAMES[source], back)}, "
                     f"{form.fconst(float('inf'), FP_NAMES[source])}")  # fmt: skip
    finite = e.v(f"fcmp olt {wide} {e.fcall(form, 'fabs', FP_NAMES[source], value)}, "
                 f"{form.fconst(float('inf'), FP_NAMES[source])}")  # fmt: skip
    past = e.v(f"and {form.int(1)} {overflowed}, {finite}")
    away = e.v(f"fneg {wide} {back}")
    difference = e.v(f"select {form.int(1)} {past}, {wide} {away}, {wide} {difference}")
    bits = e.from_fp(form, near, to)
    return step(e, form, bits, difference, FP_NAMES[source], ir.TYPE_NBITS[to], mode)


def step(e: Emitter, form: Form, bits: str, difference: str, element: str, nbits: int, mode: str) -> str:
    """Move `bits` one ulp in the direction of `difference` (exact minus nearest) where `mode` asks for it."""
    wide, kind, flag = form.of(element), form.int(nbits), form.int(1)
    zero = form.fconst(0.0, element)
    above = e.v(f"fcmp ogt {wide} {difference}, {zero}")
    below = e.v(f"fcmp olt {wide} {difference}, {zero}")
    negative = e.v(f"icmp slt {kind} {bits}, {form.const(0, nbits)}")
    # with sign and magnitude, +1 moves away from zero and -1 towards it
    positive = e.v(f"xor {flag} {negative}, {form.const(1, 1)}")
    plus, minus = form.const(1, nbits), form.const(-1, nbits)
    # a nearest result of zero may have to become the smallest number of the sign of the exact result
    magnitude = e.v(f"and {kind} {bits}, {form.const((1 << (nbits - 1)) - 1, nbits)}")
    is_zero = e.v(f"icmp eq {kind} {magnitude}, {form.const(0, nbits)}")
    if mode == "rz":
        low = e.v(f"and {flag} {positive}, {below}")
        high = e.v(f"and {flag} {negative}, {above}")
        move = e.v(f"or {flag} {low}, {high}")
        move = e.v(f"and {flag} {move}, {e.v(f'xor {flag} {is_zero}, {form.const(1, 1)}')}")
        amount = e.v(f"select {flag} {move}, {kind} {minus}, {kind} {form.const(0, nbits)}")
        return e.v(f"add {kind} {bits}, {amount}")
    move = above if mode == "rp" else below
    grows = positive if mode == "rp" else negative
    amount = e.v(f"select {flag} {grows}, {kind} {plus}, {kind} {minus}")
    moved = e.v(f"add {kind} {bits}, {amount}")
    smallest = form.const(1 if mode == "rp" else (1 << (nbits - 1)) | 1, nbits)
    moved = e.v(f"select {flag} {is_zero}, {kind} {smallest}, {kind} {moved}")
    return e.v(f"select {flag} {move}, {kind} {moved}, {kind} {bits}")


def _native(e: Emitter, form: Form, name: str, element: str, values: list[str], mode: str, kind: str) -> str:
    """f64, with error terms in f64 itself: exact unless the error underflows."""
    wide = form.of(element)
    if name in ("add", "sub"):
        other = values[1] if name == "add" else e.v(f"fneg {wide} {values[1]}")
        total, error = two_sum(e, form, element, values[0], other)
    elif name == "mul":
        total = e.v(f"fmul {wide} {values[0]}, {values[1]}")
        error = e.fcall(form, "fma", element, values[0], values[1], e.v(f"fneg {wide} {total}"))
    elif name == "div":
        total = e.v(f"fdiv {wide} {values[0]}, {values[1]}")
        error = _quotient_error(e, form, element, total, values)
    elif name == "sqrt":
        total = e.fcall(form, "sqrt", element, values[0])
        error = e.fcall(form, "fma", element, e.v(f"fneg {wide} {total}"), total, values[0])
    elif name in ("fma", "mad"):
        total, error = _fma_error(e, form, element, values)
    else:
        raise e.unsupported("directed rounding")
    if name not in ("div", "sqrt"):
        error = _past_largest(e, form, element, total, error, values)
    return step(e, form, e.from_fp(form, total, kind), error, element, ir.TYPE_NBITS[kind], mode)


def _fma_error(e: Emitter, form: Form, element: str, values: list[str]) -> tuple[str, str]:
    """The rounded a * b + c, and a number with the sign of its error (Boldo and Muller, "Exact and approximated error
    of the FMA")."""
    kind = form.of(element)
    total = e.fcall(form, "fma", element, *values)
    high = e.v(f"fmul {kind} {values[0]}, {values[1]}")
    low = e.fcall(form, "fma", element, values[0], values[1], e.v(f"fneg {kind} {high}"))
    middle, lowest = two_sum(e, form, element, values[2], low)
    top, rest = two_sum(e, form, element, high, middle)
    gap = e.v(f"fadd {kind} {e.v(f'fsub {kind} {top}, {total}')}, {rest}")
    return total, e.v(f"fadd {kind} {gap}, {lowest}")


def _past_largest(e: Emitter, form: Form, element: str, total: str, error: str, values: list[str]) -> str:
    """An infinite result of finite operands lies further out than the exact one."""
    kind, flag, infinity = form.of(element), form.int(1), form.fconst(float("inf"), element)
    past = e.v(f"fcmp oeq {kind} {e.fcall(form, 'fabs', element, total)}, {infinity}")
    for value in values:
        finite = e.v(f"fcmp olt {kind} {e.fcall(form, 'fabs', element, value)}, {infinity}")
        past = e.v(f"and {flag} {past}, {finite}")
    return e.v(f"select {flag} {past}, {kind} {e.v(f'fneg {kind} {total}')}, {kind} {error}")


def two_sum(e: Emitter, form: Form, element: str, a: str, b: str) -> tuple[str, str]:
    """Knuth's two-sum: the rounded sum and its exact error."""
    kind = form.of(element)
    total = e.v(f"fadd {kind} {a}, {b}")
    bb = e.v(f"fsub {kind} {total}, {a}")
    rest = e.v(f"fsub {kind} {a}, {e.v(f'fsub {kind} {total}, {bb}')}")
    return total, e.v(f"fadd {kind} {rest}, {e.v(f'fsub {kind} {b}, {bb}')}")


def _quotient_error(e: Emitter, form: Form, element: str, quotient: str, values: list[str]) -> str:
    """A number with the sign of a/b - quotient."""
    kind = form.of(element)
    rest = e.fcall(form, "fma", element, e.v(f"fneg {kind} {quotient}"), values[1], values[0])
    one = e.fcall(form, "copysign", element, form.fconst(1.0, element), values[1])
    return e.v(f"fmul {kind} {rest}, {one}")
