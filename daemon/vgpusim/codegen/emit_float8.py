"""cvt between pairs of 8-bit floats (e4m3, e5m2) and f32 or f16x2. e4m3 has no infinity, and 448 as its largest
number; both have one NaN, 0x7f, when made by conversion."""

from __future__ import annotations

from dataclasses import dataclass

from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import Form
from vgpusim.ptx import ir


@dataclass(frozen=True, slots=True)
class _Format:
    mantissa: int  # bits
    bias: int
    largest: int  # code of the largest finite number


FORMATS = {"e4m3x2": _Format(3, 7, 0x7E), "e5m2x2": _Format(2, 15, 0x7B)}


def convert_pair(e: Emitter, ins: ir.Instruction) -> None:
    """cvt.rn.satfinite{.relu}.e4m3x2.f32 d, a, b (a is the upper half); .e4m3x2.f16x2 d, a; .rn.f16x2.e4m3x2 d, a."""
    name = ins.one_of(*FORMATS)
    types = [m for m in ins.modifiers if m in FORMATS or m in ir.TYPE_NBITS]
    if name is None or len(types) != 2 or not ins.has("rn"):
        raise e.unsupported()
    if types == ["f16x2", name]:
        form, (pair,) = e.sources(ins, ins.operands[1:2], 16)
        halves = [_to_half(e, form, e.v(f"lshr {form.int(16)} {pair}, {form.const(at, 16)}"), name) for at in (0, 8)]
        if ins.has("relu"):
            raise e.unsupported()
        e.put(ins.operands[0], form, _join(e, form, halves, 16), 32)
        return
    if not ins.has("satfinite"):
        raise e.malformed(".satfinite missing")
    if types == [name, "f32"]:
        form, values = e.sources(ins, ins.operands[1:3], 32)
        floats = [e.v(f"bitcast {form.int(32)} {v} to {form.of('float')}") for v in (values[1], values[0])]
    elif types == [name, "f16x2"]:
        form, (pair,) = e.sources(ins, ins.operands[1:2], 32)
        words = [e.v(f"lshr {form.int(32)} {pair}, {form.const(at, 32)}") for at in (0, 16)]
        halves = [e.to_fp(form, e.resize(form, word, 32, 16), "f16") for word in words]
        floats = [e.v(f"fpext {form.of('half')} {half} to {form.of('float')}") for half in halves]
    else:
        raise e.unsupported()
    codes = [_from_float(e, form, x, FORMATS[name], ins.has("relu")) for x in floats]
    joined = _join(e, form, [e.resize(form, code, 32, 8) for code in codes], 8)
    e.put(ins.operands[0], form, joined, 16)


def _join(e: Emitter, form: Form, pair: list[str], nbits: int) -> str:
    low, high = (e.resize(form, part, nbits, 2 * nbits) for part in pair)
    kind = form.int(2 * nbits)
    return e.v(f"or {kind} {low}, {e.v(f'shl {kind} {high}, {form.const(nbits, 2 * nbits)}')}")


def _to_half(e: Emitter, form: Form, word: str, name: str) -> str:
    """The f16 bits of the low byte of a 16-bit word: exact. f16 has e5m2's exponent, and e4m3's is moved by a
    multiplication, which makes subnormals right as well."""
    kind, half = form.int(16), form.of("half")
    if name == "e5m2x2":
        return e.canonical_nan(form, e.v(f"shl {kind} {word}, {form.const(8, 16)}"), "f16")
    magnitude = e.v(f"and {kind} {word}, {form.const(0x7F, 16)}")
    sign = e.v(f"shl {kind} {e.v(f'and {kind} {word}, {form.const(0x80, 16)}')}, {form.const(8, 16)}")
    shifted = e.to_fp(form, e.v(f"shl {kind} {magnitude}, {form.const(7, 16)}"), "f16")
    scaled = e.from_fp(form, e.v(f"fmul {half} {shifted}, {form.fconst(256.0, 'half')}"), "f16")
    nan = e.v(f"icmp eq {kind} {magnitude}, {form.const(0x7F, 16)}")
    signed = e.v(f"or {kind} {scaled}, {sign}")
    return e.v(f"select {form.int(1)} {nan}, {kind} {form.const(0x7FFF, 16)}, {kind} {signed}")


def _from_float(e: Emitter, form: Form, x: str, to: _Format, relu: bool) -> str:
    """The code, in 32 bits, nearest to an f32: to even, clamped to the largest finite number."""
    kind, flag, single = form.int(32), form.int(1), form.of("float")
    bits = e.v(f"bitcast {single} {x} to {kind}")
    magnitude = e.v(f"and {kind} {bits}, {form.const(0x7FFFFFFF, 32)}")
    drop = 23 - to.mantissa
    lsb = e.v(f"and {kind} {e.v(f'lshr {kind} {magnitude}, {form.const(drop, 32)}')}, {form.const(1, 32)}")
    rounded = e.v(f"add {kind} {e.v(f'add {kind} {magnitude}, {form.const((1 << (drop - 1)) - 1, 32)}')}, {lsb}")
    top = e.v(f"lshr {kind} {rounded}, {form.const(drop, 32)}")
    normal = e.v(f"sub {kind} {top}, {form.const((127 - to.bias) << to.mantissa, 32)}")
    normal = e.icall(form, "umin", 32, normal, form.const(to.largest, 32))
    # Below the smallest normal number codes are multiples of a quantum.
    absolute = e.v(f"bitcast {kind} {magnitude} to {single}")
    limited = e.fcall(form, "minnum", "float", absolute, form.fconst(1.0, "float"))
    steps = e.v(f"fmul {single} {limited}, {form.fconst(2.0 ** (to.bias - 1 + to.mantissa), 'float')}")
    small = e.v(f"fptoui {single} {e.fcall(form, 'roundeven', 'float', steps)} to {kind}")
    is_small = e.v(f"fcmp olt {single} {absolute}, {form.fconst(2.0 ** (1 - to.bias), 'float')}")
    code = e.v(f"select {flag} {is_small}, {kind} {small}, {kind} {normal}")
    sign = e.v(f"and {kind} {e.v(f'lshr {kind} {bits}, {form.const(24, 32)}')}, {form.const(0x80, 32)}")
    code = e.v(f"or {kind} {code}, {sign}")
    if relu:
        negative = e.v(f"icmp slt {kind} {bits}, {form.const(0, 32)}")
        code = e.v(f"select {flag} {negative}, {kind} {form.const(0, 32)}, {kind} {code}")
    nan = e.v(f"fcmp uno {single} {x}, {x}")
    return e.v(f"select {flag} {nan}, {kind} {form.const(0x7F, 32)}, {kind} {code}")
