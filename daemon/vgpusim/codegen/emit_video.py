"""Video instructions. Scalar ones on whole registers: an operation on 33-bit numbers, then perhaps a clamp, then
perhaps another with a third operand. The others do an operation on each half or byte of registers."""

from __future__ import annotations

from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import Form
from vgpusim.ptx import ir

_WIDE = 64  # bits: holds any result, also the product of vmad
_RANGES = {"s32": (-(1 << 31), (1 << 31) - 1), "u32": (0, (1 << 32) - 1)}
_SECOND = ("add", "min", "max")
_COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}


@emits("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset")
def video(e: Emitter, ins: ir.Instruction) -> None:
    """vadd.dtype.atype.btype{.sat}{.clamp|.wrap}{.op2} d, a, b{, c} and vset.atype.btype.cmp{.op2}, without parts of
    registers (.b0, .h1)."""
    types = [word for word in ins.modifiers if word in ir.TYPE_NBITS]
    second = ins.one_of(*_SECOND)
    if ins.opcode == "vset" and len(types) == 2:
        types.insert(0, "u32")
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
        case "vset":
            result = _compared(e, ins, form, _WIDE, a, b)
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


_PARTS = tuple(
    f"{name}{count}" for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vavrg", "vset") for count in (2, 4)
)


@emits(*_PARTS)
def parts(e: Emitter, ins: ir.Instruction) -> None:
    """vadd2.dtype.atype.btype{.sat|.add} d, a, b, c and its like, without selection of parts: the results are the parts
    of d, so that c has no effect; or, by .add, their sum and c's."""
    types = [word for word in ins.modifiers if word in ir.TYPE_NBITS]
    is_set = ins.opcode.startswith("vset")
    to, a_type, b_type = ("u32", *types) if is_set and len(types) == 2 else types if len(types) == 3 else ("", "", "")
    allowed = {*types, "add", *(_COMPARISONS if is_set else ("sat",))}
    both = ins.has("sat") and ins.has("add")
    if not {to, a_type, b_type} <= set(_RANGES) or not set(ins.modifiers) <= allowed or len(ins.operands) != 4 or both:
        raise e.unsupported()
    form, (a, b, total) = e.sources(ins, ins.operands[1:], 32)
    kind, nbits = form.int(32), 32 // int(ins.opcode[-1])
    if not ins.has("add"):
        total = form.const(0, 32)
    for part in range(32 // nbits):
        sides = []
        for value, signed in ((a, a_type == "s32"), (b, b_type == "s32")):
            high = e.v(f"shl {kind} {value}, {form.const(32 - nbits * (part + 1), 32)}")
            sides.append(e.v(f"{'ashr' if signed else 'lshr'} {kind} {high}, {form.const(32 - nbits, 32)}"))
        result = _of_part(e, ins, form, sides[0], sides[1])
        if ins.has("sat"):
            low, high_most = (-(1 << nbits - 1), (1 << nbits - 1) - 1) if to == "s32" else (0, (1 << nbits) - 1)
            result = e.icall(form, "smax", 32, result, form.const(low, 32))
            result = e.icall(form, "smin", 32, result, form.const(high_most, 32))
        if ins.has("add"):
            total = e.v(f"add {kind} {total}, {result}")
        else:
            result = e.v(f"and {kind} {result}, {form.const((1 << nbits) - 1, 32)}")
            total = e.v(f"or {kind} {total}, {e.v(f'shl {kind} {result}, {form.const(nbits * part, 32)}')}")
    e.put(ins.operands[0], form, total, 32)


def _of_part(e: Emitter, ins: ir.Instruction, form: Form, a: str, b: str) -> str:
    kind = form.int(32)
    match ins.opcode[:-1]:
        case "vadd" | "vsub":
            return e.v(f"{ins.opcode[1:-1]} {kind} {a}, {b}")
        case "vabsdiff":
            return e.icall(form, "abs", 32, e.v(f"sub {kind} {a}, {b}"), flag=True)
        case "vmin" | "vmax":
            return e.icall(form, "s" + ins.opcode[1:-1], 32, a, b)
        case "vset":
            return _compared(e, ins, form, 32, a, b)
    # An average rounds up, unless the sum is negative.
    total = e.v(f"add {kind} {a}, {b}")
    sign = e.v(f"lshr {kind} {total}, {form.const(31, 32)}")
    rounded = e.v(f"add {kind} {total}, {e.v(f'xor {kind} {sign}, {form.const(1, 32)}')}")
    return e.v(f"ashr {kind} {rounded}, {form.const(1, 32)}")


def _compared(e: Emitter, ins: ir.Instruction, form: Form, nbits: int, a: str, b: str) -> str:
    """1 where the comparison of signed numbers holds, else 0."""
    name = ins.one_of(*_COMPARISONS)
    if name is None:
        raise e.unsupported()
    found = e.v(f"icmp {_COMPARISONS[name]} {form.int(nbits)} {a}, {b}")
    return e.v(f"zext {form.int(1)} {found} to {form.int(nbits)}")


def _shift(e: Emitter, ins: ir.Instruction, form: Form, a: str, b: str) -> str:
    if ins.has("clamp") == ins.has("wrap") or ins.has("sat"):
        raise e.unsupported()
    kind = form.int(_WIDE)
    if ins.has("clamp"):
        b = e.icall(form, "umin", _WIDE, e.v(f"and {kind} {b}, {form.const(0xFFFFFFFF, _WIDE)}"), form.const(32, _WIDE))
    else:
        b = e.v(f"and {kind} {b}, {form.const(31, _WIDE)}")
    return e.v(f"{'shl' if ins.opcode == 'vshl' else 'ashr'} {kind} {a}, {b}")
