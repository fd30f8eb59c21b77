"""Scalar video instructions on whole registers: an operation on 33-bit numbers, then perhaps a clamp, then perhaps
another with a third operand."""

from __future__ import annotations

from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import Form
from vgpusim.ptx import ir

_WIDE = 64  # bits: holds any result, also the product of vmad
_RANGES = {"s32": (-(1 << 31), (1 << 31) - 1), "u32": (0, (1 << 32) - 1)}
_SECOND = ("add", "min", "max")


@emits("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr")
def video(e: Emitter, ins: ir.Instruction) -> None:
    """vadd.dtype.atype.btype{.sat}{.clamp|.wrap}{.op2} d, a, b{, c}, without parts of registers (.b0, .h1)."""
    types = [word for word in ins.modifiers if word in ir.TYPE_NBITS]
    second = ins.one_of(*_SECOND)
    if len(types) != 3 or not set(types) <= set(_RANGES) or len(ins.operands) != (4 if second else 3):
        raise e.unsupported()
    to, a_type, b_type = types
    form, values = e.sources(ins, ins.operands[1:], 32)
    wide = form.int(_WIDE)
    a, b = (e.resize(form, v, 32, _WIDE, kind == "s32") for v, kind in zip(values, (a_type, b_type), strict=False))
    match ins.opcode:
        case "vadd" | "vsub":
            result = e.v(f"{ins.opcode[1:]} {wide} {a}, {b}")
        case "vabsdiff":
            result = e.icall(form, "abs", _WIDE, e.v(f"sub {wide} {a}, {b}"), flag=True)
        case "vmin" | "vmax":
            result = e.icall(form, "s" + ins.opcode[1:], _WIDE, a, b)
        case _:
            result = _shift(e, ins, form, a, b)
    if ins.has("sat"):
        low, high = _RANGES[to]
        result = e.icall(form, "smax", _WIDE, result, form.const(low, _WIDE))
        result = e.icall(form, "smin", _WIDE, result, form.const(high, _WIDE))
    bits = e.resize(form, result, _WIDE, 32)
    if second == "add":
        bits = e.v(f"add {form.int(32)} {bits}, {values[2]}")
    elif second:
        bits = e.icall(form, ("s" if to == "s32" else "u") + second, 32, bits, values[2])
    e.put(ins.operands[0], form, bits, 32)


@emits("vabsdiff2", "vabsdiff4")
def summed_differences(e: Emitter, ins: ir.Instruction) -> None:
    """vabsdiff4.dtype.atype.btype.add d, a, b, c: c and the differences of all parts, without selection of parts."""
    types = [word for word in ins.modifiers if word in ir.TYPE_NBITS]
    if len(types) != 3 or not set(types) <= set(_RANGES) or set(ins.modifiers) != {*types, "add"}:
        raise e.unsupported()
    if len(ins.operands) != 4:
        raise e.unsupported()
    form, (a, b, total) = e.sources(ins, ins.operands[1:], 32)
    kind, nbits = form.int(32), 32 // int(ins.opcode[-1])
    for part in range(32 // nbits):
        sides = []
        for value, signed in ((a, types[1] == "s32"), (b, types[2] == "s32")):
            high = e.v(f"shl {kind} {value}, {form.const(32 - nbits * (part + 1), 32)}")
            sides.append(e.v(f"{'ashr' if signed else 'lshr'} {kind} {high}, {form.const(32 - nbits, 32)}"))
        difference = e.icall(form, "abs", 32, e.v(f"sub {kind} {sides[0]}, {sides[1]}"), flag=True)
        total = e.v(f"add {kind} {total}, {difference}")
    e.put(ins.operands[0], form, total, 32)


def _shift(e: Emitter, ins: ir.Instruction, form: Form, a: str, b: str) -> str:
    if ins.has("clamp") == ins.has("wrap") or ins.has("sat"):
        raise e.unsupported()
    kind = form.int(_WIDE)
    if ins.has("clamp"):
        b = e.icall(form, "umin", _WIDE, e.v(f"and {kind} {b}, {form.const(0xFFFFFFFF, _WIDE)}"), form.const(32, _WIDE))
    else:
        b = e.v(f"and {kind} {b}, {form.const(31, _WIDE)}")
    return e.v(f"{'shl' if ins.opcode == 'vshl' else 'ashr'} {kind} {a}, {b}")
