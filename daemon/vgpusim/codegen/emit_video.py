"""Video instructions. Scalar ones: an operation on 33-bit numbers, then perhaps a clamp, then perhaps another with a
third operand; an operand may be a byte or a half of its register. The others do an operation on each half or byte.

A card does them in software since Maxwell, and what it gives where a result does not fit is not always what PTX's
description says; it is done here as an H200 does it (tests/vgpusim/codegen/data)."""

from __future__ import annotations

from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import Form
from vgpusim.ptx import ir

_WIDE = 64  # bits: holds any result, also the product of vmad
_SIGNED = (-(1 << 31), (1 << 31) - 1)
_TYPES = frozenset(("s32", "u32"))
_SECOND = ("add", "min", "max")
_COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}


@emits("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset")
def video(e: Emitter, ins: ir.Instruction) -> None:
    """vadd.dtype.atype.btype{.sat}{.clamp|.wrap}{.op2} d, a, b{, c} and vset.atype.btype.cmp{.op2}. Where d is a part
    of its register the rest of the register is c's."""
    types = [word for word in ins.modifiers if word in ir.TYPE_NBITS]
    second, target = ins.one_of(*_SECOND), _part_of(ins, "d")
    if ins.opcode == "vset" and len(types) == 2:
        types.insert(0, types[0])  # of the second operation; the comparison gives 0 or 1
    merged = target != (0, 32)
    if len(types) != 3 or not set(types) <= _TYPES or len(ins.operands) != (4 if second or merged else 3):
        raise e.unsupported()
    if merged and second:
        raise e.unsupported("a part of the destination and a second operation")
    if merged and ins.has("sat") and ins.opcode in ("vshl", "vshr"):
        raise e.unsupported("saturation of shifts in a part of the destination")
    to, a_type, b_type = types
    form, values = e.sources(ins, ins.operands[1:], 32)
    wide = form.int(_WIDE)
    a, b = (
        _operand(e, ins, form, name, value, kind == "s32")
        for name, value, kind in zip("ab", values, (a_type, b_type), strict=False)
    )
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
        result = _saturated(e, ins, form, to, result, target[1])
    if second in ("min", "max"):
        result = _bounded(e, ins, form, to, result, values[2], second)
    bits = e.resize(form, result, _WIDE, 32)
    if second == "add":
        bits = e.v(f"add {form.int(32)} {bits}, {values[2]}")
    elif merged:
        bits = _merged(e, form, bits, values[2], *target)
    e.put(ins.operands[0], form, bits, 32)


def _part_of(ins: ir.Instruction, name: str) -> tuple[int, int]:
    """The first bit and the number of bits of operand d, a or b: the parser leaves `a.b2` among the modifiers."""
    for word in ins.modifiers:
        operand, _, part = word.partition(":")
        if part and operand == name:
            nbits = 8 if part[0] == "b" else 16
            return nbits * int(part[1]), nbits
    return 0, 32


def _operand(e: Emitter, ins: ir.Instruction, form: Form, name: str, value: str, signed: bool) -> str:
    """An operand, or its part, as a wide number."""
    first, nbits = _part_of(ins, name)
    if nbits != 32:
        value = e.v(f"shl {form.int(32)} {value}, {form.const(32 - first - nbits, 32)}")
        value = e.v(f"{'ashr' if signed else 'lshr'} {form.int(32)} {value}, {form.const(32 - nbits, 32)}")
    return e.resize(form, value, 32, _WIDE, signed)


def _saturated(e: Emitter, ins: ir.Instruction, form: Form, to: str, result: str, nbits: int) -> str:
    """To the range of the destination. Of u32 a card bounds only vshl's results from above; in a part of s32 it makes
    negative results the largest number."""
    if nbits != 32:
        if to == "u32":
            raise e.unsupported("a card's saturation in a part of the destination is recorded for s32 alone")
        return e.icall(form, "umin", _WIDE, result, form.const((1 << (nbits - 1)) - 1, _WIDE))
    low, high = _SIGNED if to == "s32" else (0, (1 << 32) - 1)
    result = e.icall(form, "smax", _WIDE, result, form.const(low, _WIDE))
    if to == "s32" or ins.opcode == "vshl":
        result = e.icall(form, "smin", _WIDE, result, form.const(high, _WIDE))
    return result


def _bounded(e: Emitter, ins: ir.Instruction, form: Form, to: str, result: str, c: str, name: str) -> str:
    """The second operation min or max, of u32 on unsigned wide numbers. A card has cut some first results to 32 bits
    and extended them by their sign."""
    if ins.opcode in ("vadd", "vsub") or (ins.has("sat") and ins.opcode in ("vshl", "vshr")):
        result = e.resize(form, e.resize(form, result, _WIDE, 32), 32, _WIDE, signed=True)
    prefix, third = "s" if to == "s32" else "u", e.resize(form, c, 32, _WIDE, signed=to == "s32")
    return e.icall(form, prefix + name, _WIDE, result, third)


def _merged(e: Emitter, form: Form, bits: str, c: str, first: int, nbits: int) -> str:
    """A card takes the result's lowest bits, but the high half into d.h1."""
    kind, mask = form.int(32), ((1 << nbits) - 1) << first
    if nbits == 8:
        bits = e.v(f"shl {kind} {bits}, {form.const(first, 32)}")
    placed = e.v(f"and {kind} {bits}, {form.const(mask, 32)}")
    return e.v(f"or {kind} {placed}, {e.v(f'and {kind} {c}, {form.const(~mask, 32)}')}")


@emits("vmad")
def multiply_add(e: Emitter, ins: ir.Instruction) -> None:
    """vmad.dtype.atype.btype{.sat}{.shr7|.shr15} d, a, b, c: as on a card a whole operand is a signed number, and the
    result is unsigned where both factors are, whatever dtype says."""
    types = [word for word in ins.modifiers if word in ir.TYPE_NBITS]
    known = {*types, "sat", "shr7", "shr15"}
    parts = [_part_of(ins, name)[1] for name in "ab"]
    if len(types) != 3 or not set(types) <= _TYPES or _part_of(ins, "d")[1] != 32:
        raise e.unsupported()
    if any(":" not in word and word not in known for word in ins.modifiers):
        raise e.unsupported()
    unsigned = types[1] == types[2] == "u32"
    if ins.has("sat") and 32 in parts and "u32" in types[1:]:
        raise e.unsupported("a card's result for whole unsigned operands is not recorded")
    form, values = e.sources(ins, ins.operands[1:], 32)
    wide = form.int(_WIDE)
    a, b = (
        _operand(e, ins, form, name, value, kind == "s32" or nbits == 32)
        for name, value, kind, nbits in zip("ab", values, types[1:], parts, strict=False)
    )
    result = e.v(f"add {wide} {e.v(f'mul {wide} {a}, {b}')}, {e.resize(form, values[2], 32, _WIDE, signed=True)}")
    amount = ins.one_of("shr7", "shr15")
    if amount:
        name = "lshr" if unsigned and ins.has("sat") else "ashr"
        result = e.v(f"{name} {wide} {result}, {form.const(int(amount[3:]), _WIDE)}")
    if ins.has("sat"):
        low, high = (0, (1 << 32) - 1) if unsigned else _SIGNED
        result = e.icall(form, "smax", _WIDE, result, form.const(low, _WIDE))
        result = e.icall(form, "smin", _WIDE, result, form.const(high, _WIDE))
    e.put(ins.operands[0], form, e.resize(form, result, _WIDE, 32), 32)


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
    if not {to, a_type, b_type} <= _TYPES or not set(ins.modifiers) <= allowed or len(ins.operands) != 4 or both:
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
    if ins.has("clamp") == ins.has("wrap"):
        raise e.unsupported()
    kind = form.int(_WIDE)
    if ins.has("clamp"):
        b = e.icall(form, "umin", _WIDE, e.v(f"and {kind} {b}, {form.const(0xFFFFFFFF, _WIDE)}"), form.const(32, _WIDE))
    else:
        b = e.v(f"and {kind} {b}, {form.const(31, _WIDE)}")
    result = e.v(f"{'shl' if ins.opcode == 'vshl' else 'ashr'} {kind} {a}, {b}")
    if ins.opcode == "vshl" and ins.has("sat"):  # a card saturates a number of 34 bits
        result = e.v(f"shl {kind} {result}, {form.const(30, _WIDE)}")
        result = e.v(f"ashr {kind} {result}, {form.const(30, _WIDE)}")
    return result
