"""cvt between pairs of floats of 8, 6 and 4 bits and f32, f16x2 or bf16x2. e4m3 has no infinity, and 448 as its largest
number; conversion to e4m3 or e5m2 makes one NaN, 0x7f. The 6- and 4-bit types have neither: a NaN becomes
their largest number. ue8m0 is the exponent of a power of two; conversion to ue8m0 ignores the sign."""

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
    sign: int  # bit
    nan: int  # code that a NaN becomes
    nbits: int = 8  # that one number takes up in memory


_FORMATS = {
    "e4m3x2": _Format(3, 7, 0x7E, 7, 0x7F), "e5m2x2": _Format(2, 15, 0x7B, 7, 0x7F),
    "e2m3x2": _Format(3, 1, 0x1F, 5, 0x1F), "e3m2x2": _Format(2, 3, 0x1F, 5, 0x1F),
    "e2m1x2": _Format(1, 1, 0x7, 3, 0x7, 4),
}  # fmt: skip
_POWERS = "ue8m0x2"
FORMATS = (*_FORMATS, _POWERS)


def convert_pair(e: Emitter, ins: ir.Instruction) -> None:
    """cvt.rn.satfinite{.relu}.e4m3x2.f32 d, a, b (a is the upper half); .e4m3x2.f16x2 d, a; .rn.f16x2.e4m3x2 d, a."""
    name = ins.one_of(*FORMATS)
    types = [m for m in ins.modifiers if m in FORMATS or m in ir.TYPE_NBITS]
    if name is None or len(types) != 2:
        raise e.unsupported()
    if name == _POWERS:
        _convert_powers(e, ins, types)
        return
    to, nbits = _FORMATS[name], _FORMATS[name].nbits
    if not ins.has("rn"):
        raise e.unsupported()
    if types == ["f16x2", name]:
        form, (pair,) = e.sources(ins, ins.operands[1:2], 2 * nbits)
        pair = e.resize(form, pair, 2 * nbits, 16)
        halves = [to_half(e, form, e.v(f"lshr {form.int(16)} {pair}, {form.const(at, 16)}"), name) for at in (0, nbits)]
        if ins.has("relu"):
            halves = [_without_negative(e, form, half) for half in halves]
        e.put(ins.operands[0], form, _join(e, form, halves, 16), 32)
        return
    if not ins.has("satfinite"):
        raise e.malformed(".satfinite missing")
    if types[0] != name:
        raise e.unsupported()
    form, floats = _source_pair(e, ins, types[1])
    codes = [_from_float(e, form, x, to, ins.has("relu")) for x in floats]
    joined = _join(e, form, [e.resize(form, code, 32, nbits) for code in codes], nbits)
    e.put(ins.operands[0], form, joined, 2 * nbits)


def _source_pair(e: Emitter, ins: ir.Instruction, kind: str) -> tuple[Form, list[str]]:
    """The two floats that are converted, the lower half first."""
    if kind == "f32":
        form, values = e.sources(ins, ins.operands[1:3], 32)
        return form, [e.to_fp(form, v, "f32") for v in (values[1], values[0])]
    if kind not in ("f16x2", "bf16x2"):
        raise e.unsupported()
    form, (pair,) = e.sources(ins, ins.operands[1:2], 32)
    word = form.int(32)
    if kind == "bf16x2":
        low, high = (
            e.v(f"shl {word} {pair}, {form.const(16, 32)}"),
            e.v(f"and {word} {pair}, {form.const(-1 << 16, 32)}"),
        )
        return form, [e.to_fp(form, v, "f32") for v in (low, high)]
    words = [e.v(f"lshr {word} {pair}, {form.const(at, 32)}") for at in (0, 16)]
    halves = [e.to_fp(form, e.resize(form, part, 32, 16), "f16") for part in words]
    return form, [e.v(f"fpext {form.of('half')} {half} to {form.of('float')}") for half in halves]


def _convert_powers(e: Emitter, ins: ir.Instruction, types: list[str]) -> None:
    """cvt.{rz,rp}{.satfinite}.ue8m0x2.{f32 d, a, b | bf16x2 d, a}; cvt.rn.bf16x2.ue8m0x2 d, a."""
    if types == ["bf16x2", _POWERS] and ins.has("rn"):
        form, (pair,) = e.sources(ins, ins.operands[1:2], 16)
        halves = []
        for at in (0, 8):
            kind, flag = form.int(16), form.int(1)
            part = e.v(f"lshr {kind} {pair}, {form.const(at, 16)}")
            code = e.v(f"and {kind} {part}, {form.const(0xFF, 16)}")
            bits = e.v(f"shl {kind} {code}, {form.const(7, 16)}")
            for odd, value in ((0, 0x40), (0xFF, 0x7FFF)):  # 2**-127, a subnormal, and NaN
                hit = e.v(f"icmp eq {kind} {code}, {form.const(odd, 16)}")
                bits = e.v(f"select {flag} {hit}, {kind} {form.const(value, 16)}, {kind} {bits}")
            halves.append(bits)
        e.put(ins.operands[0], form, _join(e, form, halves, 16), 32)
        return
    if types[0] != _POWERS or not ins.has("rz", "rp") or ins.has("relu"):
        raise e.unsupported()
    form, floats = _source_pair(e, ins, types[1])
    codes = [e.resize(form, _power_of(e, form, x, ins.has("rp"), ins.has("satfinite")), 32, 8) for x in floats]
    e.put(ins.operands[0], form, _join(e, form, codes, 8), 16)


def _power_of(e: Emitter, form: Form, x: str, up: bool, finite: bool) -> str:
    """The code, in 32 bits, of the power of two at or below |x|, or with `up` at or above it; code 0 is 2**-127."""
    kind, flag = form.int(32), form.int(1)
    size = e.v(f"and {kind} {e.from_fp(form, x, 'f32')}, {form.const(0x7FFFFFFF, 32)}")
    code = e.v(f"lshr {kind} {size}, {form.const(23, 32)}")
    if up:
        rest = e.v(f"and {kind} {size}, {form.const(0x7FFFFF, 32)}")
        tiny = e.v(f"icmp eq {kind} {code}, {form.const(0, 32)}")
        least = e.v(f"select {flag} {tiny}, {kind} {form.const(0x400000, 32)}, {kind} {form.const(0, 32)}")
        above = e.v(f"icmp ugt {kind} {rest}, {least}")
        code = e.v(f"add {kind} {code}, {e.v(f'zext {flag} {above} to {kind}')}")
    code = e.icall(form, "umin", 32, code, form.const(0xFE if finite else 0xFF, 32))
    nan = e.v(f"icmp ugt {kind} {size}, {form.const(0x7F800000, 32)}")
    return e.v(f"select {flag} {nan}, {kind} {form.const(0xFF, 32)}, {kind} {code}")


def _without_negative(e: Emitter, form: Form, half: str) -> str:
    """Replace negative numbers by zero; a NaN has lost its sign before."""
    negative = e.v(f"icmp slt {form.int(16)} {half}, {form.const(0, 16)}")
    return e.v(f"select {form.int(1)} {negative}, {form.int(16)} {form.const(0, 16)}, {form.int(16)} {half}")


def _join(e: Emitter, form: Form, pair: list[str], nbits: int) -> str:
    low, high = (e.resize(form, part, nbits, 2 * nbits) for part in pair)
    kind = form.int(2 * nbits)
    return e.v(f"or {kind} {low}, {e.v(f'shl {kind} {high}, {form.const(nbits, 2 * nbits)}')}")


def to_half(e: Emitter, form: Form, word: str, name: str) -> str:
    """The f16 bits of the low code of a 16-bit word: exact. f16 has e5m2's exponent, and the others' are moved by a
    multiplication, which makes subnormals right as well."""
    kind, half, source = form.int(16), form.of("half"), _FORMATS[name]
    if name == "e5m2x2":
        return e.canonical_nan(form, e.v(f"shl {kind} {word}, {form.const(8, 16)}"), "f16")
    magnitude = e.v(f"and {kind} {word}, {form.const((1 << source.sign) - 1, 16)}")
    sign = e.v(f"and {kind} {word}, {form.const(1 << source.sign, 16)}")
    sign = e.v(f"shl {kind} {sign}, {form.const(15 - source.sign, 16)}")
    shifted = e.to_fp(form, e.v(f"shl {kind} {magnitude}, {form.const(10 - source.mantissa, 16)}"), "f16")
    moved = e.v(f"fmul {half} {shifted}, {form.fconst(2.0 ** (15 - source.bias), 'half')}")
    signed = e.v(f"or {kind} {e.from_fp(form, moved, 'f16')}, {sign}")
    if source.nan == source.largest:
        return signed
    nan = e.v(f"icmp eq {kind} {magnitude}, {form.const(source.nan, 16)}")
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
    limited = e.fcall(form, "minnum", "float", absolute, form.fconst(2.0 ** (1 - to.bias), "float"))
    steps = e.v(f"fmul {single} {limited}, {form.fconst(2.0 ** (to.bias - 1 + to.mantissa), 'float')}")
    small = e.v(f"fptoui {single} {e.fcall(form, 'roundeven', 'float', steps)} to {kind}")
    is_small = e.v(f"fcmp olt {single} {absolute}, {form.fconst(2.0 ** (1 - to.bias), 'float')}")
    code = e.v(f"select {flag} {is_small}, {kind} {small}, {kind} {normal}")
    sign = e.v(f"lshr {kind} {bits}, {form.const(31 - to.sign, 32)}")
    sign = e.v(f"and {kind} {sign}, {form.const(1 << to.sign, 32)}")
    code = e.v(f"or {kind} {code}, {sign}")
    if relu:
        negative = e.v(f"icmp slt {kind} {bits}, {form.const(0, 32)}")
        code = e.v(f"select {flag} {negative}, {kind} {form.const(0, 32)}, {kind} {code}")
    nan = e.v(f"fcmp uno {single} {x}, {x}")
    return e.v(f"select {flag} {nan}, {kind} {form.const(to.nan, 32)}, {kind} {code}")
