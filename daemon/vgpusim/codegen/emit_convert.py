"""cvt, between integers and floats of every width, and packing conversions."""

from __future__ import annotations

from vgpusim.codegen.emit_float import flush, operand, result_bits, round_bf16, saturate
from vgpusim.codegen.emit_float8 import FORMATS, convert_pair
from vgpusim.codegen.emit_integer import is_float
from vgpusim.codegen.emit_rounding import narrow, to_odd
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import FP_NAMES, Form
from vgpusim.ptx import ir

_INTEGER_ROUNDING = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_UNSUPPORTED = ("e2m1x4", "e2m3x4", "e3m2x4", "e4m3x4", "e5m2x4", "s2f6x2", "rs")


@emits("cvt")
def convert(e: Emitter, ins: ir.Instruction) -> None:
    if ins.has(*FORMATS):
        convert_pair(e, ins)
        return
    if ins.has(*_UNSUPPORTED):
        raise e.unsupported()
    if ins.has("pack"):
        _pack_integers(e, ins)
        return
    to, source = [m for m in ins.modifiers if m in ir.TYPE_NBITS][-2:]
    if to in ("f16x2", "bf16x2"):
        _pack_floats(e, ins, to)
        return
    from_nbits = ir.TYPE_NBITS[source]
    moves = to == source == "f32" and len(ins.modifiers) == 2  # any bits, NaNs included
    form, (value,) = e.sources(
        ins, ins.operands[1:2], from_nbits, any_nan=source == "f32" and to not in ("f64", "tf32") and not moves
    )
    if moves:
        e.put(ins.operands[0], form, value, 32)
        return
    nbits = 32 if to == "tf32" else ir.TYPE_NBITS[to]
    if is_float(to) and is_float(source):
        bits = _float_to_float(e, ins, form, value, source, to)
    elif to == "tf32":
        bits = _to_tf32(e, ins, form, value)
    elif is_float(to):
        bits = _integer_to_float(e, ins, form, value, source, to)
    elif is_float(source):
        bits = _float_to_integer(e, ins, form, value, source, to)
    else:
        bits = _integer_to_integer(e, ins, form, value, source, to)
    e.put(ins.operands[0], form, bits, nbits, signed=to[0] == "s")


def _integer_to_integer(e: Emitter, ins: ir.Instruction, form: Form, value: str, source: str, to: str) -> str:
    old, new = ir.TYPE_NBITS[source], ir.TYPE_NBITS[to]
    from_signed, to_signed = source[0] == "s", to[0] == "s"
    if not ins.has("sat"):
        return e.resize(form, value, old, new, from_signed)
    width = max(old, new) + 1  # holds both ranges, signed
    wide = e.resize(form, value, old, width, from_signed)
    low, high = (-(1 << (new - 1)), (1 << (new - 1)) - 1) if to_signed else (0, (1 << new) - 1)
    wide = e.icall(form, "smax", width, wide, form.const(low, width))
    wide = e.icall(form, "smin", width, wide, form.const(high, width))
    return e.resize(form, wide, width, new)


def _integer_to_float(e: Emitter, ins: ir.Instruction, form: Form, value: str, source: str, to: str) -> str:
    nbits, name = ir.TYPE_NBITS[source], "sitofp" if source[0] == "s" else "uitofp"
    mode = ins.one_of("rz", "rm", "rp")
    if mode and to in ("f16", "bf16"):  # through f32 in the same direction: rounding twice equals rounding once
        if nbits > 32:
            single = _wide_integer_directed(e, form, value, source, "f32", mode)
        else:
            exact = e.v(f"{name} {form.int(nbits)} {value} to {form.of('double')}")
            single = narrow(e, form, exact, None, "f64", "f32", mode)
        if to == "bf16":
            if ins.has("sat"):
                raise e.unsupported("saturation to this type")
            return _directed_bf16(e, form, e.to_fp(form, single, "f32"), mode)
        bits = narrow(e, form, e.to_fp(form, single, "f32"), None, "f32", "f16", mode)
        if not ins.has("sat"):
            return bits
        return result_bits(e, form, saturate(e, form, e.to_fp(form, bits, "f16"), "half"), to)
    if (mode and nbits > 32 and to != "f64") or (mode and to == "f64" and nbits > 32):
        return _wide_integer_directed(e, form, value, source, to, mode)
    if mode and to == "f32":
        exact = e.v(f"{name} {form.int(nbits)} {value} to {form.of('double')}")
        return narrow(e, form, exact, None, "f64", "f32", mode)
    element = "float" if to == "bf16" else FP_NAMES[to]
    if to == "f16" and nbits > 16:  # through double, exact up to 53 bits; longer integers overflow f16 anyway
        exact = e.v(f"{name} {form.int(nbits)} {value} to {form.of('double')}")
        result = e.to_fp(form, double_to_half(e, form, exact), "f16")
    elif to == "bf16" and nbits > 16:
        exact = e.v(f"{name} {form.int(nbits)} {value} to {form.of('double')}")
        result = e.to_fp(form, to_odd(e, form, exact), "f32")
    else:
        result = e.v(f"{name} {form.int(nbits)} {value} to {form.of(element)}")
    if ins.has("sat"):
        result = saturate(e, form, result, element)
    return result_bits(e, form, result, to)


def _wide_integer_directed(e: Emitter, form: Form, value: str, source: str, to: str, mode: str) -> str:
    """64-bit integers: the nearest float, compared with the integer it came from."""
    if to not in ("f32", "f64"):
        raise e.unsupported("directed rounding to this type")
    from vgpusim.codegen.emit_rounding import step

    signed = source[0] == "s"
    element, nbits = FP_NAMES[to], ir.TYPE_NBITS[to]
    near = e.v(f"{'sitofp' if signed else 'uitofp'} {form.int(64)} {value} to {form.of(element)}")
    suffix = f"{form.suffix('i64')}.{form.suffix(element)}"
    kind = form.int(64)
    back = e.v(e.call(kind, f"llvm.fpto{'s' if signed else 'u'}i.sat.{suffix}", (form.of(element), near)))
    rest = e.v(f"sub {kind} {value}, {back}")
    rest = e.icall(form, "smin", 64, e.icall(form, "smax", 64, rest, form.const(-1, 64)), form.const(1, 64))
    difference = e.v(f"sitofp {kind} {rest} to {form.of(element)}")
    limit = form.fconst(2.0**63 if signed else 2.0**64, element)  # rounded up to what no integer reaches
    past = e.v(f"fcmp oge {form.of(element)} {near}, {limit}")
    below = form.fconst(-1.0, element)
    difference = e.v(f"select {form.int(1)} {past}, {form.of(element)} {below}, {form.of(element)} {difference}")
    return step(e, form, e.from_fp(form, near, to), difference, element, nbits, mode)


def _float_to_integer(e: Emitter, ins: ir.Instruction, form: Form, value: str, source: str, to: str) -> str:
    """Out of range values clamp, always. NaN gives 0, or the highest bit where 64 bits take part, as GPUs do."""
    element, x = operand(e, form, value, source, ins.has("ftz") and source == "f32")
    if element == "half":
        element, x = "float", e.v(f"fpext {form.of('half')} {x} to {form.of('float')}")
    rounding = ins.one_of(*_INTEGER_ROUNDING)
    if rounding is None:
        raise e.malformed("integer rounding missing")
    if rounding != "rzi":
        x = e.fcall(form, _INTEGER_ROUNDING[rounding], element, x)
    nbits = ir.TYPE_NBITS[to]
    name = "fptosi" if to[0] == "s" else "fptoui"
    kind = form.int(nbits)
    result = e.v(
        e.call(kind, f"llvm.{name}.sat.{form.suffix(f'i{nbits}')}.{form.suffix(element)}", (form.of(element), x))
    )
    if nbits == 64 or source == "f64":
        nan = e.v(f"fcmp uno {form.of(element)} {x}, {x}")
        result = e.v(f"select {form.int(1)} {nan}, {kind} {form.const(1 << (nbits - 1), nbits)}, {kind} {result}")
    return result


def _float_to_float(e: Emitter, ins: ir.Instruction, form: Form, value: str, source: str, to: str) -> str:
    ftz = ins.has("ftz") and (source, to) != ("f32", "f16")  # as on a card: neither its operand nor its result
    if ftz and (source, to) == ("f32", "f64"):
        value = e.canonical_nan(form, value, source)
    element, x = operand(e, form, value, source, ftz and source == "f32")
    rounding = ins.one_of(*_INTEGER_ROUNDING)
    if rounding is not None:
        x = e.fcall(form, _INTEGER_ROUNDING[rounding], element, x)
    mode = ins.one_of("rz", "rm", "rp")
    if ins.has("relu"):
        x = e.fcall(form, "maximum", element, x, form.fconst(0.0, element))
    if ins.has("sat"):
        x = saturate(e, form, x, element)
    if to == source:
        return result_bits(e, form, x, to, ftz)
    if to in ("f16", "bf16"):
        bits = _to_half(e, form, x, element, mode) if to == "f16" else _to_bf16(e, form, x, element, mode)
        if element == "double":
            bits = _with_payload(e, form, x, bits, to)
        elif to == "f16":
            bits = e.canonical_nan(form, bits, "f16")
    elif mode and element == "double" and to == "f32":
        bits = narrow(e, form, x, None, source, to, mode)
        return flush(e, form, bits) if ftz else bits
    elif mode and ir.TYPE_NBITS[to] < ir.TYPE_NBITS[source]:
        raise e.unsupported("directed rounding to this type")
    else:
        return _resized(e, form, x, element, source, to, ftz)
    return finite_bits(e, form, bits, to) if ins.has("satfinite") else bits


def _resized(e: Emitter, form: Form, x: str, element: str, source: str, to: str, ftz: bool) -> str:
    """Bits of a float of one of LLVM's types in another, to nearest."""
    order, target = ["half", "float", "double"], FP_NAMES[to]
    if element != target:
        name = "fpext" if order.index(target) > order.index(element) else "fptrunc"
        x = e.v(f"{name} {form.of(element)} {x} to {form.of(target)}")
    bits = e.from_fp(form, x, to)
    if source == "bf16" and ftz and to == "f32":
        return e.canonical_nan(form, flush(e, form, bits), "f32")
    if source in ("f64", "bf16"):  # a NaN of f64 or bf16 keeps its payload, cut or widened
        return flush(e, form, bits) if ftz and to == "f32" else bits
    return result_bits(e, form, x, to, ftz)


def _to_half(e: Emitter, form: Form, x: str, element: str, mode: str | None) -> str:
    if mode is None and element == "double":
        return double_to_half(e, form, x)
    if mode is None:
        return e.from_fp(form, e.v(f"fptrunc {form.of(element)} {x} to {form.of('half')}"), "f16")
    if element == "double":  # through f32 in the same direction: rounding twice equals rounding once
        x = e.to_fp(form, narrow(e, form, x, None, "f64", "f32", mode), "f32")
    return narrow(e, form, x, None, "f32", "f16", mode)


def _to_bf16(e: Emitter, form: Form, x: str, element: str, mode: str | None) -> str:
    if element == "half":
        x = e.v(f"fpext {form.of('half')} {x} to {form.of('float')}")
    if element == "double" and mode:  # through f32 in the same direction: rounding twice equals rounding once
        x = e.to_fp(form, narrow(e, form, x, None, "f64", "f32", mode), "f32")
    elif element == "double":
        x = e.to_fp(form, to_odd(e, form, x), "f32")
    return _directed_bf16(e, form, x, mode) if mode else round_bf16(e, form, x)


def _with_payload(e: Emitter, form: Form, x: str, bits: str, to: str) -> str:
    """A NaN of f64 gives f16 and bf16 its sign and the first bits of its payload, and becomes quiet."""
    word, wide, wide_bits = form.int(16), form.int(64), e.from_fp(form, x, "f64")
    mantissa, quiet = {"f16": (10, 0x7E00), "bf16": (7, 0x7FC0)}[to]
    high, low = (
        e.resize(form, e.v(f"lshr {wide} {wide_bits}, {form.const(by, 64)}"), 64, 16) for by in (48, 52 - mantissa)
    )
    sign = e.v(f"and {word} {high}, {form.const(0x8000, 16)}")
    payload = e.v(f"and {word} {low}, {form.const((1 << (mantissa - 1)) - 1, 16)}")
    made = e.v(f"or {word} {e.v(f'or {word} {payload}, {sign}')}, {form.const(quiet, 16)}")
    nan = e.v(f"fcmp uno {form.of('double')} {x}, {x}")
    return e.v(f"select {form.int(1)} {nan}, {word} {made}, {word} {bits}")


def finite_bits(e: Emitter, form: Form, bits: str, kind: str) -> str:
    """.satfinite: infinities become the largest finite numbers of their sign."""
    word, infinity = form.int(16), {"f16": 0x7C00, "bf16": 0x7F80}[kind]
    magnitude = e.v(f"and {word} {bits}, {form.const(0x7FFF, 16)}")
    infinite = e.v(f"icmp eq {word} {magnitude}, {form.const(infinity, 16)}")
    largest = e.v(f"sub {word} {bits}, {form.const(1, 16)}")
    return e.v(f"select {form.int(1)} {infinite}, {word} {largest}, {word} {bits}")


def double_to_half(e: Emitter, form: Form, x: str) -> str:
    odd = e.to_fp(form, to_odd(e, form, x), "f32")
    return e.from_fp(form, e.v(f"fptrunc {form.of('float')} {odd} to {form.of('half')}"), "f16")


def _directed_bf16(e: Emitter, form: Form, x: str, mode: str) -> str:
    """Round to the upper half of an f32: down in magnitude, or up by one where the direction leads away from 0."""
    word = form.int(32)
    bits = e.from_fp(form, x, "f32")
    high = e.v(f"lshr {word} {bits}, {form.const(16, 32)}")
    if mode != "rz":
        rest = e.v(f"and {word} {bits}, {form.const(0xFFFF, 32)}")
        inexact = e.v(f"icmp ne {word} {rest}, {form.const(0, 32)}")
        away = e.v(f"icmp {'slt' if mode == 'rm' else 'sge'} {word} {bits}, {form.const(0, 32)}")
        up = e.v(f"zext {form.int(1)} {e.v(f'and {form.int(1)} {inexact}, {away}')} to {word}")
        high = e.v(f"add {word} {high}, {up}")
    nan = e.v(f"fcmp uno {form.of('float')} {x}, {x}")
    high = e.v(f"select {form.int(1)} {nan}, {word} {form.const(0x7FFF, 32)}, {word} {high}")
    return e.resize(form, high, 32, 16)


def _to_tf32(e: Emitter, ins: ir.Instruction, form: Form, value: str) -> str:
    """f32 with a 10-bit mantissa: .rna rounds ties away from zero, .rn to even, .rz truncates."""
    kind, flag = form.int(32), form.int(1)
    mask = form.const(0xFFFFE000, 32)
    x = e.to_fp(form, value, "f32")
    nan = e.v(f"fcmp uno {form.of('float')} {x}, {x}")
    if ins.has("rz"):
        rounded = value
    elif ins.has("rna"):
        rounded = e.v(f"add {kind} {value}, {form.const(0x1000, 32)}")
    else:
        lsb = e.v(f"and {kind} {e.v(f'lshr {kind} {value}, {form.const(13, 32)}')}, {form.const(1, 32)}")
        rounded = e.v(f"add {kind} {e.v(f'add {kind} {value}, {form.const(0xFFF, 32)}')}, {lsb}")
    result = e.v(f"and {kind} {rounded}, {mask}")
    if ins.has("relu"):
        negative = e.v(f"icmp slt {kind} {value}, {form.const(0, 32)}")
        result = e.v(f"select {flag} {negative}, {kind} {form.const(0, 32)}, {kind} {result}")
    made = e.v(f"and {kind} {value}, {mask}") if ins.has("rna") else form.const(0x7FFFE000, 32)
    result = e.v(f"select {flag} {nan}, {kind} {made}, {kind} {result}")
    if ins.has("satfinite"):  # a card takes one from NaNs, too
        magnitude = e.v(f"and {kind} {result}, {form.const(0x7FFFFFFF, 32)}")
        large = e.v(f"icmp uge {kind} {magnitude}, {form.const(0x7F800000, 32)}")
        less = e.v(f"sub {kind} {result}, {form.const(0x2000, 32)}")
        result = e.v(f"select {flag} {large}, {kind} {less}, {kind} {result}")
    return result


def _pack_floats(e: Emitter, ins: ir.Instruction, to: str) -> None:
    """cvt.rn.f16x2.f32 d, a, b: a becomes the high half."""
    if ins.has("rm", "rp") or ins.type != "f32":
        raise e.unsupported()
    form, values = e.sources(ins, ins.operands[1:], 32, any_nan=True)
    halves = []
    for value in values:
        _, x = operand(e, form, value, "f32", ins.has("ftz") and to == "bf16x2")
        if ins.has("relu"):
            x = e.fcall(form, "maximum", "float", x, form.fconst(0.0, "float"))
        mode, kind = ins.one_of("rz"), to[:-2]
        if kind == "f16":
            bits = e.canonical_nan(form, _to_half(e, form, x, "float", mode), "f16")
        else:
            bits = _to_bf16(e, form, x, "float", mode)
        if ins.has("satfinite"):
            bits = finite_bits(e, form, bits, kind)
        halves.append(e.resize(form, bits, 16, 32))
    high = e.v(f"shl {form.int(32)} {halves[0]}, {form.const(16, 32)}")
    e.put(ins.operands[0], form, e.v(f"or {form.int(32)} {high}, {halves[1]}"), 32)


def _pack_integers(e: Emitter, ins: ir.Instruction) -> None:
    """cvt.pack.sat.to.s32[.b32] d, a, b[, c]: a and b saturated, a above b; c is shifted above both."""
    to = ins.modifiers[2]
    nbits = {"2": 2, "4": 4, "8": 8, "16": 16}.get(to[1:], 0)
    if nbits == 0 or to[0] not in "su" or (nbits < 16) != (len(ins.operands) == 4):
        raise e.unsupported()
    form, values = e.sources(ins, ins.operands[1:], 32)
    low, high = (-(1 << (nbits - 1)), (1 << (nbits - 1)) - 1) if to[0] == "s" else (0, (1 << nbits) - 1)
    kind, parts = form.int(32), []
    for value in values[:2]:
        value = e.icall(form, "smax", 32, value, form.const(low, 32))
        value = e.icall(form, "smin", 32, value, form.const(high, 32))
        parts.append(e.v(f"and {kind} {value}, {form.const((1 << nbits) - 1, 32)}"))
    result = e.v(f"or {kind} {e.v(f'shl {kind} {parts[0]}, {form.const(nbits, 32)}')}, {parts[1]}")
    if len(values) > 2:
        result = e.v(f"or {kind} {e.v(f'shl {kind} {values[2]}, {form.const(2 * nbits, 32)}')}, {result}")
    e.put(ins.operands[0], form, result, 32)
