"""Floating-point arithmetic. f16 is computed as LLVM's half; bf16 in f32 and rounded once (LLVM's bfloat needs run-time
functions on most CPUs). Nothing is contracted: fma only where PTX says so. Approximate operations are more accurate
than a GPU's, but for those that have a card's tables (emit_reciprocal.py, emit_approximate.py)."""

from __future__ import annotations

from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import FP_NAMES, Form
from vgpusim.ptx import ir


def operand(e: Emitter, form: Form, text: str, kind: str, ftz: bool = False) -> tuple[str, str]:
    """(LLVM element type, value) of an integer that holds a float of `kind`; bf16 is widened to float. `ftz` makes
    subnormals zeros."""
    if kind == "bf16":
        wide = e.v(f"shl {form.int(32)} {e.resize(form, text, 16, 32)}, {form.const(16, 32)}")
        return "float", e.v(f"bitcast {form.int(32)} {wide} to {form.of('float')}")
    if ftz and kind in ("f32", "f16"):
        text = flush(e, form, text, kind)
    return FP_NAMES[kind], e.to_fp(form, text, kind)


def result_bits(e: Emitter, form: Form, value: str, kind: str, ftz: bool = False) -> str:
    """The integer that holds `value`, an LLVM value of the element type operand() gave for `kind`. A NaN
    becomes the canonical NaN of a GPU, except in f64, where a GPU keeps an operand's NaN."""
    if kind == "bf16":
        return round_bf16(e, form, value)
    return made_bits(e, form, e.from_fp(form, value, kind), kind, ftz)


def made_bits(e: Emitter, form: Form, bits: str, kind: str, ftz: bool = False, always: bool = False) -> str:
    """As result_bits(), for a result that is an integer already. `always`: flush even if the CPU's flush mode is on."""
    if ftz and kind in ("f32", "f16"):
        bits = flush(e, form, bits, kind, always)
    if kind == "f64" or (kind == "f32" and e.defers_nan):
        return bits
    return e.canonical_nan(form, bits, kind)


def flush(e: Emitter, form: Form, bits: str, kind: str = "f32", always: bool = False) -> str:
    """Subnormals to zeros of their sign; the CPU does it for arithmetic in f32 when the whole kernel is .ftz."""
    if e.flush_by_mxcsr and kind == "f32" and not always:
        return bits
    nbits, exponent = ir.TYPE_NBITS[kind], {"f32": 0x7F800000, "f16": 0x7C00}[kind]
    word = form.int(nbits)
    small = e.v(f"icmp eq {word} {e.v(f'and {word} {bits}, {form.const(exponent, nbits)}')}, {form.const(0, nbits)}")
    sign = e.v(f"and {word} {bits}, {form.const(1 << (nbits - 1), nbits)}")
    return e.v(f"select {form.int(1)} {small}, {word} {sign}, {word} {bits}")


def last_nan(e: Emitter, form: Form, value: str, operands: list[str]) -> str:
    """f64 arithmetic returns its last NaN operand, made quiet; processors differ in which operand they return. Only a
    NaN result is corrected.
    """
    kind = form.of("double")
    unordered = e.v(f"fcmp uno {kind} {value}, {value}")
    some = e.v(f"icmp ne i{form.n} {e.v(f'bitcast {form.int(1)} {unordered} to i{form.n}')}, 0")
    name = f"last_nan.{len(operands)}.{form.suffix('f64')}"
    at = e.unique("nan")
    e.e(f"br label %{at}")
    e.label(at)
    e.e(f"br i1 {some}, label %{at}.some, label %{at}.end, !prof !1")
    e.label(f"{at}.some")
    passed = e.v(f"call {kind} @{name}({', '.join(f'{kind} {x}' for x in (value, *operands))})")
    e.e(f"br label %{at}.end")
    e.label(f"{at}.end")
    e.helper(name, _last_nan_helper(e, form, name, len(operands)))
    return e.v(f"phi {kind} [ {value}, %{at} ], [ {passed}, %{at}.some ]")


def _last_nan_helper(e: Emitter, form: Form, name: str, count: int) -> str:
    inner = Emitter(e.state, e.flush_by_mxcsr)
    kind, word = form.of("double"), form.int(64)
    bits = inner.from_fp(form, "%value", "f64")
    for i in range(count):
        nan = inner.v(f"fcmp uno {kind} %x{i}, %x{i}")
        quiet = inner.v(f"or {word} {inner.from_fp(form, f'%x{i}', 'f64')}, {form.const(1 << 51, 64)}")
        bits = inner.v(f"select {form.int(1)} {nan}, {word} {quiet}, {word} {bits}")
    inner.e(f"ret {kind} {inner.to_fp(form, bits, 'f64')}")
    listed = ", ".join((f"{kind} %value", *(f"{kind} %x{i}" for i in range(count))))
    body = "\n".join(inner.lines)
    return f"define internal {kind} @{name}({listed}) noinline #0 {{\n{body}\n}}\n"


def round_bf16(e: Emitter, form: Form, value: str) -> str:
    """f32 to bf16, to nearest even; NaN becomes the canonical 0x7fff."""
    kind = form.int(32)
    bits = e.v(f"bitcast {form.of('float')} {value} to {kind}")
    lsb = e.v(f"and {kind} {e.v(f'lshr {kind} {bits}, {form.const(16, 32)}')}, {form.const(1, 32)}")
    biased = e.v(f"add {kind} {e.v(f'add {kind} {bits}, {form.const(0x7FFF, 32)}')}, {lsb}")
    short = e.v(f"lshr {kind} {biased}, {form.const(16, 32)}")
    nan = e.v(f"fcmp uno {form.of('float')} {value}, {value}")
    short = e.v(f"select {form.int(1)} {nan}, {kind} {form.const(0x7FFF, 32)}, {kind} {short}")
    return e.resize(form, short, 32, 16)


def saturate(e: Emitter, form: Form, value: str, element: str) -> str:
    """Clamp to [0, 1]; NaN becomes 0."""
    low = e.fcall(form, "maxnum", element, value, form.fconst(0.0, element))
    return e.fcall(form, "minnum", element, low, form.fconst(1.0, element))


def packed_forms(e: Emitter, ins: ir.Instruction, form: Form, args: list[str]) -> tuple[str, Form, list[str]]:
    """For f16x2, bf16x2 and f32x2: the element type name, the form over both halves, and the arguments as integers of
    its width."""
    kind = ins.type
    if not kind.endswith("x2"):
        return kind, form, args
    pairs, nbits = Form(2 * form.n), ir.TYPE_NBITS[kind]
    return kind[:-2], pairs, [e.v(f"bitcast {form.int(nbits)} {a} to {pairs.int(nbits // 2)}") for a in args]


def arithmetic(e: Emitter, ins: ir.Instruction) -> None:
    """add, sub, mul, mad/fma, div, min, max, abs, neg of any float type, packed ones included."""
    from vgpusim.codegen import emit_reciprocal, emit_rounding

    nbits = ir.TYPE_NBITS[ins.type]
    if (ins.type == "f32x2" and ins.opcode not in ("add", "sub", "mul", "fma")) or len(
        [m for m in ins.modifiers if m in ir.TYPE_NBITS]
    ) > 1:
        raise e.unsupported()
    form, raw = e.sources(ins, ins.operands[1:], nbits, any_nan=ins.type == "f32")
    kind, wide, args = packed_forms(e, ins, form, raw)
    ftz = ins.has("ftz")
    if ins.opcode in ("abs", "neg"):
        bits = _sign(e, ins, wide, args[0], kind, ftz)
    elif ins.opcode in ("min", "max"):
        bits = _bounded(e, ins, wide, args, kind, ftz)
    else:
        values = [operand(e, wide, a, kind, ftz)[1] for a in args]
        element = operand_element(kind)
        mode = ins.one_of("rz", "rm", "rp")
        if mode:
            value = emit_rounding.directed(e, wide, ins.opcode, kind, values, mode)
        elif ins.opcode == "div" and ins.has("approx", "full"):
            value = emit_reciprocal.quotient(e, wide, values[0], values[1], ins.has("full"), ftz)
        else:
            value = _compute(e, ins, wide, kind, values)
        if kind == "f64" and ins.opcode != "div":
            value = last_nan(e, wide, value, values[1:])
        if ftz and ins.has("sat", "relu"):
            value = e.to_fp(wide, flush(e, wide, e.from_fp(wide, value, kind), kind), kind)
        if ins.has("sat"):
            value = saturate(e, wide, value, element)
        if ins.has("relu"):
            value = e.fcall(wide, "maximum", element, value, wide.fconst(0.0, element))
        bits = result_bits(e, wide, value, kind, ftz)
        if ins.has("oob"):
            bits = _zero_outside(e, ins, wide, kind, args[:2], bits)
    if wide is not form:
        bits = e.v(f"bitcast {wide.int(nbits // 2)} {bits} to {form.int(nbits)}")
    e.put(ins.operands[0], form, bits, nbits)


_OUTSIDE_NAN = 0x7FF7  # of either sign: what tensor maps put outside a tensor, in f16 and bf16


def _zero_outside(e: Emitter, ins: ir.Instruction, form: Form, kind: str, factors: list[str], bits: str) -> str:
    """fma.oob: the result is 0 where a factor lies outside its tensor."""
    if kind not in ("f16", "bf16") or ins.opcode != "fma":
        raise e.unsupported()
    word, flag = form.int(16), form.int(1)
    sizes = [e.v(f"and {word} {factor}, {form.const(0x7FFF, 16)}") for factor in factors]
    outside = [e.v(f"icmp eq {word} {size}, {form.const(_OUTSIDE_NAN, 16)}") for size in sizes]
    either = e.v(f"or {flag} {outside[0]}, {outside[1]}")
    return e.v(f"select {flag} {either}, {word} {form.const(0, 16)}, {word} {bits}")


def operand_element(kind: str) -> str:
    return "float" if kind == "bf16" else FP_NAMES[kind]


def _sign(e: Emitter, ins: ir.Instruction, form: Form, text: str, kind: str, ftz: bool) -> str:
    """abs and neg. A NaN of f64 keeps its sign and becomes quiet: a card adds -0 to it."""
    nbits = ir.TYPE_NBITS[kind]
    if ins.opcode == "abs":
        bits = e.v(f"and {form.int(nbits)} {text}, {form.const((1 << (nbits - 1)) - 1, nbits)}")
    else:
        bits = e.v(f"xor {form.int(nbits)} {text}, {form.const(1 << (nbits - 1), nbits)}")
    if kind == "f64":
        x = e.to_fp(form, text, kind)
        nan = e.v(f"fcmp uno {form.of('double')} {x}, {x}")
        quiet = e.v(f"or {form.int(64)} {text}, {form.const(1 << 51, 64)}")
        bits = e.v(f"select {form.int(1)} {nan}, {form.int(64)} {quiet}, {form.int(64)} {bits}")
    return made_bits(e, form, bits, kind, ftz, always=True)


def _compute(e: Emitter, ins: ir.Instruction, form: Form, kind: str, values: list[str]) -> str:
    element = operand_element(kind)
    match ins.opcode:
        case "add" | "sub" | "mul" | "div":
            return e.v(f"f{ins.opcode} {form.of(element)} {values[0]}, {values[1]}")
        case "fma" | "mad":
            if kind == "f16":
                return _half_fma(e, form, values)
            if kind == "bf16":
                return _short_fma(e, form, values)
            return e.fcall(form, "fma", element, *values)
    raise e.unsupported()


def _short_fma(e: Emitter, form: Form, values: list[str]) -> str:
    """a * b + c of bf16 values in f32, rounded to odd, so that the rounding to bf16 is the only one. In double the
    product is exact."""
    from vgpusim.codegen.emit_rounding import to_odd, two_sum

    double, word = form.of("double"), form.int(64)
    a, b, c = (e.v(f"fpext {form.of('float')} {v} to {double}") for v in values)
    total, error = two_sum(e, form, "double", e.v(f"fmul {double} {a}, {b}"), c)
    bits = e.from_fp(form, total, "f64")
    inexact = e.v(f"fcmp one {double} {error}, {form.fconst(0.0, 'double')}")
    even = e.v(f"icmp eq {word} {e.v(f'and {word} {bits}, {form.const(1, 64)}')}, {form.const(0, 64)}")
    signs = e.v(f"xor {word} {bits}, {e.from_fp(form, error, 'f64')}")
    step = e.v(f"or {word} {e.v(f'ashr {word} {signs}, {form.const(63, 64)}')}, {form.const(1, 64)}")
    change = e.v(f"and {form.int(1)} {inexact}, {even}")
    odd = e.v(f"add {word} {bits}, {e.v(f'select {form.int(1)} {change}, {word} {step}, {word} {form.const(0, 64)}')}")
    return e.to_fp(form, to_odd(e, form, e.to_fp(form, odd, "f64")), "f32")


def _half_fma(e: Emitter, form: Form, values: list[str]) -> str:
    """In f32 the product is exact; the sum is rounded to odd there, so that rounding to half is the only one. (LLVM's
    own expansion calls a run-time function on CPUs without half arithmetic.)"""
    from vgpusim.codegen.emit_rounding import two_sum

    single, kind = form.of("float"), form.int(32)
    a, b, c = (e.v(f"fpext {form.of('half')} {v} to {single}") for v in values)
    total, error = two_sum(e, form, "float", e.v(f"fmul {single} {a}, {b}"), c)
    bits = e.v(f"bitcast {single} {total} to {kind}")
    inexact = e.v(f"fcmp one {single} {error}, {form.fconst(0.0, 'float')}")
    even = e.v(f"icmp eq {kind} {e.v(f'and {kind} {bits}, {form.const(1, 32)}')}, {form.const(0, 32)}")
    signs = e.v(f"xor {kind} {bits}, {e.v(f'bitcast {single} {error} to {kind}')}")
    step = e.v(f"or {kind} {e.v(f'ashr {kind} {signs}, {form.const(31, 32)}')}, {form.const(1, 32)}")
    change = e.v(f"and {form.int(1)} {inexact}, {even}")
    odd = e.v(f"add {kind} {bits}, {e.v(f'select {form.int(1)} {change}, {kind} {step}, {kind} {form.const(0, 32)}')}")
    return e.v(f"fptrunc {single} {e.v(f'bitcast {kind} {odd} to {single}')} to {form.of('half')}")


def _bounded(e: Emitter, ins: ir.Instruction, form: Form, args: list[str], kind: str, ftz: bool) -> str:
    """Bits of min and max. The CPU's flush mode is for arithmetic, so .ftz is done here."""
    if ftz and kind in ("f32", "f16"):
        args = [flush(e, form, a, kind, always=True) for a in args]
    values = [operand(e, form, a, kind)[1] for a in args]
    element = operand_element(kind)
    value = _extremum(e, ins, form, element, values)
    if kind == "f64":  # of two NaNs the result is the last
        a, b = values[:2]
        neither = e.v(f"fcmp uno {form.of(element)} {a}, {a}")
        value = e.v(f"select {form.int(1)} {neither}, {form.of(element)} {last_nan(e, form, b, [b])}, "
                    f"{form.of(element)} {value}")  # fmt: skip
    if ins.has("relu"):
        value = e.fcall(form, "maximum", element, value, form.fconst(0.0, element))
    return result_bits(e, form, value, kind)


def _extremum(e: Emitter, ins: ir.Instruction, form: Form, element: str, values: list[str]) -> str:
    """-0 is below +0. Without .NaN a NaN operand loses. .xorsign.abs compares magnitudes and xors the signs."""
    name = ("minimum" if ins.opcode == "min" else "maximum") + ("" if ins.has("NaN") else "num")
    if ins.has("xorsign"):
        nbits = {"half": 16, "float": 32, "double": 64}[element]
        plain = [e.fcall(form, "fabs", element, v) for v in values]
        bits = [e.v(f"bitcast {form.of(element)} {v} to {form.int(nbits)}") for v in values]
        sign = e.v(
            f"bitcast {form.int(nbits)} {e.v(f'xor {form.int(nbits)} {bits[0]}, {bits[1]}')} to {form.of(element)}"
        )
        return e.fcall(form, "copysign", element, e.fcall(form, name, element, *plain), sign)
    result = values[0]
    for value in values[1:]:
        result = e.fcall(form, name, element, result, value)
    return result


@emits("fma")
def fused(e: Emitter, ins: ir.Instruction) -> None:
    arithmetic(e, ins)


@emits("rcp", "sqrt", "rsqrt", "sin", "cos", "ex2", "lg2", "tanh")
def unary(e: Emitter, ins: ir.Instruction) -> None:
    from vgpusim.codegen import emit_approximate, emit_reciprocal, emit_rounding

    nbits = ir.TYPE_NBITS[ins.type]
    form, raw = e.sources(ins, ins.operands[1:2], nbits, any_nan=ins.type == "f32")
    kind, wide, args = packed_forms(e, ins, form, raw)
    ftz = ins.has("ftz")
    element, x = operand(e, wide, args[0], kind, ftz)
    mode = ins.one_of("rz", "rm", "rp")
    if mode:
        one = wide.fconst(1.0, element)
        name, values = ("div", [one, x]) if ins.opcode == "rcp" else ("sqrt", [x])
        bits = result_bits(e, wide, emit_rounding.directed(e, wide, name, kind, values, mode), kind, ftz)
    else:
        if kind == "f16":  # computed in f32: one rounding at the end
            element, x = "float", e.v(f"fpext {wide.of('half')} {x} to {wide.of('float')}")
        if ins.opcode == "rcp" and ins.has("approx") and kind == "f32":
            value = emit_reciprocal.reciprocal(e, wide, x, ftz)
        elif ins.opcode != "tanh" and ins.has("approx") and kind == "f32":
            value = emit_approximate.approximate(e, wide, ins.opcode, x, ftz)
        elif ins.opcode == "ex2":
            value = emit_approximate.short_power(e, wide, x, kind)
        else:
            value = _function(e, ins.opcode, wide, element, x)
        if kind == "f16":
            value = e.v(f"fptrunc {wide.of('float')} {value} to {wide.of('half')}")
        bits = result_bits(e, wide, value, kind, ftz)
    if wide is not form:
        bits = e.v(f"bitcast {wide.int(16)} {bits} to {form.int(32)}")
    e.put(ins.operands[0], form, bits, nbits)


def _function(e: Emitter, name: str, form: Form, element: str, x: str) -> str:
    kind = form.of(element)
    one = form.fconst(1.0, element)
    match name:
        case "sqrt":
            return e.fcall(form, "sqrt", element, x)
        case "rcp":
            return e.v(f"fdiv {kind} {one}, {x}")
        case "rsqrt":
            return e.v(f"fdiv {kind} {one}, {e.fcall(form, 'sqrt', element, x)}")
    return e.fcall(form, name, element, x)


@emits("copysign")
def copy_sign(e: Emitter, ins: ir.Instruction) -> None:
    """copysign d, a, b: the sign of a, the rest of b."""
    nbits = ir.TYPE_NBITS[ins.type]
    form, (a, b) = e.sources(ins, ins.operands[1:], nbits)
    kind, sign = form.int(nbits), 1 << (nbits - 1)
    high = e.v(f"and {kind} {a}, {form.const(sign, nbits)}")
    low = e.v(f"and {kind} {b}, {form.const(sign - 1, nbits)}")
    e.put(ins.operands[0], form, e.v(f"or {kind} {high}, {low}"), nbits)


@emits("testp")
def test_property(e: Emitter, ins: ir.Instruction) -> None:
    classes = {
        "finite": 0x1F8,
        "infinite": 0x204,
        "number": 0x3FC,
        "notanumber": 0x3,
        "normal": 0x168,  # includes zeros
        "subnormal": 0x90,
    }
    name = ins.one_of(*classes)
    if name is None:
        raise e.unsupported()
    nbits, element = ir.TYPE_NBITS[ins.type], FP_NAMES[ins.type]
    form, (a,) = e.sources(ins, ins.operands[1:], nbits)
    x = e.to_fp(form, a, ins.type)
    call = e.call(
        form.int(1), f"llvm.is.fpclass.{form.suffix(element)}", (form.of(element), x), ("i32", str(classes[name]))
    )
    e.put(ins.operands[0], form, e.v(call), 1)
