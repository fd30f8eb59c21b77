"""Bit fields, bit counts, byte permutation, three-input logic, funnel shifts, small dot products."""

from __future__ import annotations

from vgpusim.codegen.emit_integer import clamped_shift
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import Form
from vgpusim.ptx import ir


@emits("popc", "clz", "brev")
def count(e: Emitter, ins: ir.Instruction) -> None:
    nbits = ir.TYPE_NBITS[ins.type]
    form, (a,) = e.sources(ins, ins.operands[1:], nbits)
    name = {"popc": "ctpop", "clz": "ctlz", "brev": "bitreverse"}[ins.opcode]
    result = e.icall(form, name, nbits, a, flag=ins.opcode == "clz")
    if ins.opcode != "brev":
        result, nbits = e.resize(form, result, nbits, 32), 32
    e.put(ins.operands[0], form, result, nbits)


@emits("bfind")
def find_leading(e: Emitter, ins: ir.Instruction) -> None:
    """Place of the highest bit that is not a sign bit, -1 if none; .shiftamt: how far to shift it to the top."""
    nbits = ir.TYPE_NBITS[ins.type]
    form, (a,) = e.sources(ins, ins.operands[1:], nbits)
    kind = form.int(nbits)
    if ins.type[0] == "s":
        a = e.v(f"xor {kind} {a}, {e.v(f'ashr {kind} {a}, {form.const(nbits - 1, nbits)}')}")
    leading = e.resize(form, e.icall(form, "ctlz", nbits, a, flag=True), nbits, 32)
    result = leading
    if not ins.has("shiftamt"):
        result = e.v(f"sub {form.int(32)} {form.const(nbits - 1, 32)}, {leading}")
    else:
        zero = e.v(f"icmp eq {kind} {a}, {form.const(0, nbits)}")
        result = e.v(f"select {form.int(1)} {zero}, {form.int(32)} {form.const(-1, 32)}, {form.int(32)} {leading}")
    e.put(ins.operands[0], form, result, 32)


@emits("bfe")
def extract_field(e: Emitter, ins: ir.Instruction) -> None:
    """Bits pos..pos+len-1; .s repeats the field's sign, which is at the top of the word when the field extends past
    it."""
    nbits, signed = ir.TYPE_NBITS[ins.type], ins.type[0] == "s"
    form, (a, b, c) = e.sources(ins, ins.operands[1:], nbits, 32, 32)
    word = form.int(32)
    pos, length = _field_place(e, form, b, c, nbits)
    kind = form.int(nbits)
    shifted = clamped_shift(e, form, "ashr" if signed else "lshr", a, pos, nbits)
    unused = e.icall(form, "usub.sat", 32, form.const(nbits, 32), length)
    left = clamped_shift(e, form, "shl", shifted, unused, nbits)
    result = clamped_shift(e, form, "ashr" if signed else "lshr", left, unused, nbits)
    empty = e.v(f"icmp eq {word} {length}, {form.const(0, 32)}")
    e.put(
        ins.operands[0],
        form,
        e.v(f"select {form.int(1)} {empty}, {kind} {form.const(0, nbits)}, {kind} {result}"),
        nbits,
    )


def _field_place(e: Emitter, form: Form, pos: str, length: str, nbits: int) -> tuple[str, str]:
    """Position and length: for 32-bit fields a card takes the low byte of each, for 64-bit ones the whole word."""
    if nbits == 64:
        return pos, length
    low = form.const(255, 32)
    return e.v(f"and {form.int(32)} {pos}, {low}"), e.v(f"and {form.int(32)} {length}, {low}")


@emits("bfi")
def insert_field(e: Emitter, ins: ir.Instruction) -> None:
    nbits = ir.TYPE_NBITS[ins.type]
    form, (a, b, c, d) = e.sources(ins, ins.operands[1:], nbits, nbits, 32, 32)
    kind = form.int(nbits)
    pos, length = _field_place(e, form, c, d, nbits)
    ones = clamped_shift(e, form, "shl", form.const(-1, nbits), length, nbits)
    mask = clamped_shift(e, form, "shl", e.v(f"xor {kind} {ones}, {form.const(-1, nbits)}"), pos, nbits)
    field = e.v(f"and {kind} {clamped_shift(e, form, 'shl', a, pos, nbits)}, {mask}")
    rest = e.v(f"and {kind} {b}, {e.v(f'xor {kind} {mask}, {form.const(-1, nbits)}')}")
    e.put(ins.operands[0], form, e.v(f"or {kind} {field}, {rest}"), nbits)


@emits("bmsk")
def make_mask(e: Emitter, ins: ir.Instruction) -> None:
    """b ones from bit a upwards: .clamp limits both to 32, .wrap takes them modulo 32."""
    form, (a, b) = e.sources(ins, ins.operands[1:], 32)
    kind = form.int(32)
    if ins.has("wrap"):
        a, b = (e.v(f"and {kind} {x}, {form.const(31, 32)}") for x in (a, b))
    ones = e.v(f"xor {kind} {clamped_shift(e, form, 'shl', form.const(-1, 32), b, 32)}, {form.const(-1, 32)}")
    e.put(ins.operands[0], form, clamped_shift(e, form, "shl", ones, a, 32), 32)


@emits("szext")
def extend(e: Emitter, ins: ir.Instruction) -> None:
    """Keep b low bits, sign- or zero-extended."""
    form, (a, b) = e.sources(ins, ins.operands[1:], 32)
    kind, signed = form.int(32), ins.type[0] == "s"
    if ins.has("wrap"):
        b = e.v(f"and {kind} {b}, {form.const(31, 32)}")
    unused = e.icall(form, "usub.sat", 32, form.const(32, 32), b)
    left = clamped_shift(e, form, "shl", a, unused, 32)
    result = clamped_shift(e, form, "ashr" if signed else "lshr", left, unused, 32)
    empty = e.v(f"icmp eq {kind} {b}, {form.const(0, 32)}")
    e.put(ins.operands[0], form, e.v(f"select {form.int(1)} {empty}, {kind} {form.const(0, 32)}, {kind} {result}"), 32)


@emits("lop3")
def logic3(e: Emitter, ins: ir.Instruction) -> None:
    """Any function of three bits, as the or of its minterms; LLVM finds the shortest form."""
    if ins.has("or", "and"):
        raise e.unsupported("predicate output")
    form, (a, b, c) = e.sources(ins, ins.operands[1:4], 32)
    table = ins.operands[4]
    if not isinstance(table, ir.Imm):
        raise e.unsupported("lookup table is not a constant")
    kind, minus = form.int(32), form.const(-1, 32)
    inverse = [e.v(f"xor {kind} {x}, {minus}") for x in (a, b, c)]
    result = form.const(0, 32)
    for index in range(8):
        if table.value >> index & 1:
            x, y, z = (v if index >> (2 - i) & 1 else inverse[i] for i, v in enumerate((a, b, c)))
            both = e.v(f"and {kind} {x}, {y}")
            result = e.v(f"or {kind} {result}, {e.v(f'and {kind} {both}, {z}')}")
    e.put(ins.operands[0], form, result, 32)


@emits("shf")
def funnel_shift(e: Emitter, ins: ir.Instruction) -> None:
    """shf.l: the high word of {b,a} << c; shf.r: the low word of {b,a} >> c."""
    form, (a, b, c) = e.sources(ins, ins.operands[1:], 32)
    kind, wide = form.int(32), form.int(64)
    if ins.has("wrap"):
        amount = e.v(f"and {kind} {c}, {form.const(31, 32)}")
    else:
        amount = e.icall(form, "umin", 32, c, form.const(32, 32))
    high = e.v(f"shl {wide} {e.resize(form, b, 32, 64)}, {form.const(32, 64)}")
    pair = e.v(f"or {wide} {high}, {e.resize(form, a, 32, 64)}")
    by = e.resize(form, amount, 32, 64)
    if ins.has("l"):
        shifted = e.v(f"lshr {wide} {e.v(f'shl {wide} {pair}, {by}')}, {form.const(32, 64)}")
    else:
        shifted = e.v(f"lshr {wide} {pair}, {by}")
    e.put(ins.operands[0], form, e.resize(form, shifted, 64, 32), 32)


@emits("prmt")
def permute_bytes(e: Emitter, ins: ir.Instruction) -> None:
    form, (a, b, c) = e.sources(ins, ins.operands[1:], 32)
    kind, wide = form.int(32), form.int(64)
    mode = ins.one_of("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    high = e.v(f"shl {wide} {e.resize(form, b, 32, 64)}, {form.const(32, 64)}")
    pair = e.v(f"or {wide} {high}, {e.resize(form, a, 32, 64)}")
    result = form.const(0, 32)
    for byte in range(4):
        select, sign = _selector(e, form, c, byte, mode)
        by = e.resize(form, e.v(f"shl {kind} {select}, {form.const(3, 32)}"), 32, 64)
        picked = e.resize(form, e.v(f"lshr {wide} {pair}, {by}"), 64, 32)
        picked = e.v(f"and {kind} {picked}, {form.const(255, 32)}")
        if sign is not None:
            spread = e.v(f"lshr {kind} {picked}, {form.const(7, 32)}")
            spread = e.v(f"mul {kind} {spread}, {form.const(255, 32)}")
            picked = e.v(f"select {form.int(1)} {sign}, {kind} {spread}, {kind} {picked}")
        result = e.v(f"or {kind} {result}, {e.v(f'shl {kind} {picked}, {form.const(8 * byte, 32)}')}")
    e.put(ins.operands[0], form, result, 32)


def _selector(e: Emitter, form: Form, c: str, byte: int, mode: str | None) -> tuple[str, str | None]:
    """(which of 8 source bytes, whether its sign is replicated) for a result byte."""
    kind = form.int(32)
    if mode is None:
        nibble = e.v(f"lshr {kind} {c}, {form.const(4 * byte, 32)}")
        sign = e.v(f"icmp ne {kind} {e.v(f'and {kind} {nibble}, {form.const(8, 32)}')}, {form.const(0, 32)}")
        return e.v(f"and {kind} {nibble}, {form.const(7, 32)}"), sign
    control = e.v(f"and {kind} {c}, {form.const(3, 32)}")
    match mode:
        case "f4e":
            return e.v(f"add {kind} {control}, {form.const(byte, 32)}"), None
        case "b4e":
            moved = e.v(f"sub {kind} {control}, {form.const(byte, 32)}")
            return e.v(f"and {kind} {moved}, {form.const(7, 32)}"), None
        case "rc8":
            return control, None
        case "ecl":
            return e.icall(form, "umax", 32, control, form.const(byte, 32)), None
        case "ecr":
            return e.icall(form, "umin", 32, control, form.const(byte, 32)), None
    odd = e.v(f"and {kind} {control}, {form.const(1, 32)}")
    return e.v(f"add {kind} {e.v(f'shl {kind} {odd}, {form.const(1, 32)}')}, {form.const(byte & 1, 32)}"), None


@emits("dp4a", "dp2a")
def dot_product(e: Emitter, ins: ir.Instruction) -> None:
    form, (a, b, c) = e.sources(ins, ins.operands[1:], 32)
    kinds = [m for m in ins.modifiers if m in ("u32", "s32")]
    kind, result = form.int(32), c
    wide = ins.opcode == "dp2a"
    for index in range(2 if wide else 4):
        a_bits, a_at = (16, 16 * index) if wide else (8, 8 * index)
        b_at = 8 * index + (16 if wide and ins.has("hi") else 0)
        x = _field(e, form, a, a_at, a_bits, kinds[0] == "s32")
        y = _field(e, form, b, b_at, 8, kinds[1] == "s32")
        result = e.v(f"add {kind} {result}, {e.v(f'mul {kind} {x}, {y}')}")
    e.put(ins.operands[0], form, result, 32)


def _field(e: Emitter, form: Form, value: str, at: int, nbits: int, signed: bool) -> str:
    kind = form.int(32)
    top = e.v(f"shl {kind} {value}, {form.const(32 - nbits - at, 32)}")
    return e.v(f"{'ashr' if signed else 'lshr'} {kind} {top}, {form.const(32 - nbits, 32)}")


@emits("fns")
def find_set(e: Emitter, ins: ir.Instruction) -> None:
    """fns.b32 d, mask, base, offset: the place of the offset-th set bit of the mask from base on, downwards where the
    offset is negative; offset 0 asks whether bit base is set. All bits are set where there is none."""
    form, args = e.sources(ins, ins.operands[1:], 32)
    name = f"fns.{form.suffix('i32')}"
    kind = form.int(32)
    e.helper(name, _find_set_helper(e, form, name))
    e.put(ins.operands[0], form, e.v(f"call {kind} @{name}({', '.join(f'{kind} {a}' for a in args)})"), 32)


def _find_set_helper(e: Emitter, form: Form, name: str) -> str:
    inner, kind, flag = Emitter(e.state, e.flush_by_mxcsr), form.int(32), form.int(1)
    zero, one, none = (form.const(value, 32) for value in (0, 1, -1))
    down = inner.v(f"icmp slt {kind} %offset, {zero}")
    reversed_mask = inner.icall(form, "bitreverse", 32, "%mask")
    mask = inner.v(f"select {flag} {down}, {kind} {reversed_mask}, {kind} %mask")
    mirrored = inner.v(f"sub {kind} {form.const(31, 32)}, %base")
    base = inner.v(f"select {flag} {down}, {kind} {mirrored}, {kind} %base")
    wanted = inner.icall(form, "abs", 32, "%offset", flag=True)
    here = inner.v(f"icmp eq {kind} {wanted}, {zero}")  # the bit at base, or nothing
    found, count = none, zero
    for place in range(32):
        at = form.const(place, 32)
        bit = inner.v(f"and {kind} {inner.v(f'lshr {kind} {mask}, {at}')}, {one}")
        is_base = inner.v(f"icmp eq {kind} {base}, {at}")
        counted = inner.v(f"icmp ule {kind} {base}, {at}")
        step = inner.v(f"select {flag} {counted}, {kind} {bit}, {kind} {zero}")
        count = inner.v(f"add {kind} {count}, {step}")
        is_last = inner.v(f"icmp eq {kind} {count}, {wanted}")
        reached = inner.v(f"select {flag} {here}, {flag} {is_base}, {flag} {is_last}")
        taken = inner.v(f"and {flag} {reached}, {inner.v(f'icmp ne {kind} {step}, {zero}')}")
        found = inner.v(f"select {flag} {taken}, {kind} {at}, {kind} {found}")
    back = inner.v(f"sub {kind} {form.const(31, 32)}, {found}")
    missing = inner.v(f"icmp eq {kind} {found}, {none}")
    least = inner.v(f"icmp eq {kind} %offset, {form.const(1 << 31, 32)}")  # a card gives 0
    mirror = inner.v(f"and {flag} {down}, {inner.v(f'xor {flag} {missing}, {form.const(1, 1)}')}")
    result = inner.v(f"select {flag} {mirror}, {kind} {back}, {kind} {found}")
    inner.e(f"ret {kind} {inner.v(f'select {flag} {least}, {kind} {zero}, {kind} {result}')}")
    e.declarations |= inner.declarations
    listed = ", ".join(f"{kind} %{argument}" for argument in ("mask", "base", "offset"))
    body = "\n".join(inner.lines)
    return f"define internal {kind} @{name}({listed}) noinline #0 {{\n{body}\n}}\n"
