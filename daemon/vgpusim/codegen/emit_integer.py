"""Integer and logic instructions, comparison and selection."""

from __future__ import annotations

from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import Bound, Form
from vgpusim.ptx import ir

_INT_COMPARE = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge", "eq": "eq", "ne": "ne"}
_FLOAT_COMPARE = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "equ": "ueq", "neu": "une",
    "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord", "nan": "uno",
}  # fmt: skip


def is_float(kind: str) -> bool:
    return kind[:1] == "f" or kind.startswith("bf")


@emits("add", "sub", "mul", "mad", "min", "max", "abs", "neg", "div", "rem")
def arithmetic(e: Emitter, ins: ir.Instruction) -> None:
    from vgpusim.codegen import emit_float

    if is_float(ins.type):
        emit_float.arithmetic(e, ins)
    elif ins.type.endswith("x2"):
        _packed(e, ins)
    elif ins.has("cc") or ins.opcode in ("addc", "subc", "madc"):
        carry(e, ins)
    elif ins.opcode in ("mul", "mad"):
        _multiply(e, ins)
    else:
        nbits = ir.TYPE_NBITS[ins.type]
        form, args = e.sources(ins, ins.operands[1:], nbits)
        e.put(ins.operands[0], form, _simple(e, ins, form, args, nbits), nbits)


def _simple(e: Emitter, ins: ir.Instruction, form: Form, args: list[str], nbits: int) -> str:
    kind, signed = form.int(nbits), ins.type[0] == "s"
    match ins.opcode:
        case "add" | "sub":
            if ins.has("sat"):
                return e.icall(form, f"s{ins.opcode}.sat", nbits, *args)
            return e.v(f"{ins.opcode} {kind} {args[0]}, {args[1]}")
        case "min" | "max":
            result = e.icall(form, f"{'s' if signed else 'u'}{ins.opcode}", nbits, *args)
            if ins.has("relu"):
                result = e.icall(form, "smax", nbits, result, form.const(0, nbits))
            return result
        case "abs":
            return e.icall(form, "abs", nbits, args[0], flag=True)
        case "neg":
            return e.v(f"sub {kind} {form.const(0, nbits)}, {args[0]}")
    return divide(e, form, args, nbits, signed, ins.opcode == "rem")


def divide(e: Emitter, form: Form, args: list[str], nbits: int, signed: bool, remainder: bool) -> str:
    """Division that cannot trap: x/0 gives all ones and x%0 gives x, as GPUs do; INT_MIN/-1 wraps."""
    kind, one = form.int(nbits), form.const(1, nbits)
    a, b = args
    zero = e.v(f"icmp eq {kind} {b}, {form.const(0, nbits)}")
    flag = form.int(1)
    divisor = e.v(f"select {flag} {zero}, {kind} {one}, {kind} {b}")
    if signed:
        minimum = e.v(f"icmp eq {kind} {a}, {form.const(1 << (nbits - 1), nbits)}")
        minus = e.v(f"icmp eq {kind} {b}, {form.const(-1, nbits)}")
        both = e.v(f"and {flag} {minimum}, {minus}")
        divisor = e.v(f"select {flag} {both}, {kind} {one}, {kind} {divisor}")
    prefix = "s" if signed else "u"
    result = e.v(f"{prefix}{'rem' if remainder else 'div'} {kind} {a}, {divisor}")
    return e.v(f"select {flag} {zero}, {kind} {a if remainder else form.const(-1, nbits)}, {kind} {result}")


def _multiply(e: Emitter, ins: ir.Instruction) -> None:
    nbits, signed = ir.TYPE_NBITS[ins.type], ins.type[0] == "s"
    wide = ins.has("wide")
    out = nbits * 2 if wide else nbits
    form, args = e.sources(ins, ins.operands[1:], nbits, nbits, out)
    result = product(e, form, args[0], args[1], nbits, signed, ins.one_of("lo", "hi", "wide") or "lo")
    if ins.opcode == "mad":
        if ins.has("sat"):
            result = e.icall(form, "sadd.sat", out, result, args[2])
        else:
            result = e.v(f"add {form.int(out)} {result}, {args[2]}")
    e.put(ins.operands[0], form, result, out)


def product(e: Emitter, form: Form, a: str, b: str, nbits: int, signed: bool, part: str) -> str:
    """The low, high or whole (`wide`) product of two integers."""
    if part == "lo":
        return e.v(f"mul {form.int(nbits)} {a}, {b}")
    double = form.int(nbits * 2)
    x, y = (e.resize(form, value, nbits, nbits * 2, signed) for value in (a, b))
    full = e.v(f"mul {double} {x}, {y}")
    if part == "wide":
        return full
    high = e.v(f"lshr {double} {full}, {form.const(nbits, nbits * 2)}")
    return e.resize(form, high, nbits * 2, nbits)


@emits("mul24", "mad24")
def multiply_24(e: Emitter, ins: ir.Instruction) -> None:
    signed = ins.type[0] == "s"
    form, args = e.sources(ins, ins.operands[1:], 32)
    kind = form.int(32)
    eight = form.const(8, 32)
    low = [e.v(f"{'ashr' if signed else 'lshr'} {kind} {e.v(f'shl {kind} {a}, {eight}')}, {eight}") for a in args[:2]]
    if ins.has("hi"):  # bits 47..16 of the 48-bit product
        full = product(e, form, low[0], low[1], 32, signed, "wide")
        result = e.resize(form, e.v(f"lshr {form.int(64)} {full}, {form.const(16, 64)}"), 64, 32)
    else:
        result = e.v(f"mul {kind} {low[0]}, {low[1]}")
    if ins.opcode == "mad24" and ins.has("sat"):
        result = e.icall(form, "sadd.sat", 32, result, args[2])
    elif ins.opcode == "mad24":
        result = e.v(f"add {kind} {result}, {args[2]}")
    e.put(ins.operands[0], form, result, 32)


def _packed(e: Emitter, ins: ir.Instruction) -> None:
    """Two 16-bit integers in one register (sm_90): add, min, max."""
    form, args = e.sources(ins, ins.operands[1:], 32)
    pairs = Form(2 * form.n)
    kind = pairs.int(16)
    values = [e.v(f"bitcast {form.int(32)} {a} to {kind}") for a in args]
    result = _simple(e, ins, pairs, values, 16)
    e.put(ins.operands[0], form, e.v(f"bitcast {kind} {result} to {form.int(32)}"), 32)


@emits("addc", "subc", "madc")
def carry(e: Emitter, ins: ir.Instruction) -> None:
    """Extended precision: the carry flag CC.CF is one hidden bit a lane. A subtraction adds the complement and 1, so
    that the flag is set where nothing is borrowed."""
    nbits, signed = ir.TYPE_NBITS[ins.type], ins.type[0] == "s"
    a, b, *rest = e.lanes(ins.operands[1:], nbits)
    form = Form(32)
    wide = nbits + 8  # room for the carry
    kind = form.int(wide)
    slot = e.stack("carry", form.int(8))
    if ins.opcode in ("mad", "madc"):
        a = product(e, form, a, b, nbits, signed, ins.one_of("lo", "hi") or "lo")
        b = rest[0]
    if ins.opcode in ("sub", "subc"):
        b = e.v(f"xor {form.int(nbits)} {b}, {form.const(-1, nbits)}")
    total = e.v(f"add {kind} {e.resize(form, a, nbits, wide)}, {e.resize(form, b, nbits, wide)}")
    if ins.opcode.endswith("c"):
        old = e.v(f"load {form.int(8)}, ptr {slot}, align 64")
        total = e.v(f"add {kind} {total}, {e.resize(form, old, 8, wide)}")
    elif ins.opcode == "sub":
        total = e.v(f"add {kind} {total}, {form.const(1, wide)}")
    if ins.has("cc"):
        flag = e.v(f"and {kind} {e.v(f'lshr {kind} {total}, {form.const(nbits, wide)}')}, {form.const(1, wide)}")
        bits = e.resize(form, flag, wide, 8)
        mask = e.mask()
        if mask is not None:
            old = e.v(f"load {form.int(8)}, ptr {slot}, align 64")
            bits = e.v(f"select <32 x i1> {mask}, {form.int(8)} {bits}, {form.int(8)} {old}")
        e.e(f"store {form.int(8)} {bits}, ptr {slot}, align 64")
    e.put(ins.operands[0], form, e.resize(form, total, wide, nbits), nbits)


@emits("and", "or", "xor", "not", "cnot")
def logic(e: Emitter, ins: ir.Instruction) -> None:
    nbits = ir.TYPE_NBITS[ins.type]
    form, args = e.sources(ins, ins.operands[1:], nbits)
    kind = form.int(nbits)
    if ins.opcode == "not":
        result = e.v(f"xor {kind} {args[0]}, {form.const(-1, nbits)}")
    elif ins.opcode == "cnot":
        zero = e.v(f"icmp eq {kind} {args[0]}, {form.const(0, nbits)}")
        result = e.v(f"zext {form.int(1)} {zero} to {kind}")
    else:
        result = e.v(f"{ins.opcode} {kind} {args[0]}, {args[1]}")
    e.put(ins.operands[0], form, result, nbits)


@emits("shl", "shr")
def shift(e: Emitter, ins: ir.Instruction) -> None:
    """Amounts above the width are clamped to it: zeros, or for shr.s the sign."""
    nbits, signed = ir.TYPE_NBITS[ins.type], ins.type[0] == "s"
    form, (value, amount) = e.sources(ins, ins.operands[1:], nbits, 32)
    name = "shl" if ins.opcode == "shl" else "ashr" if signed else "lshr"
    e.put(ins.operands[0], form, clamped_shift(e, form, name, value, amount, nbits), nbits)


def clamped_shift(e: Emitter, form: Form, name: str, value: str, amount: str, nbits: int) -> str:
    """A shift by an unsigned 32-bit amount that may be too large."""
    kind, count = form.int(nbits), form.int(32)
    if amount.lstrip("-").isdigit():
        number = int(amount) & 0xFFFFFFFF
        if number < nbits or name == "ashr":
            return e.v(f"{name} {kind} {value}, {form.const(min(number, nbits - 1), nbits)}")
        return form.const(0, nbits) if form.vector else "0"
    limited = e.icall(form, "umin", 32, amount, form.const(nbits - 1, 32))
    result = e.v(f"{name} {kind} {value}, {e.resize(form, limited, 32, nbits)}")
    if name == "ashr":
        return result
    large = e.v(f"icmp ugt {count} {amount}, {form.const(nbits - 1, 32)}")
    return e.v(f"select {form.int(1)} {large}, {kind} {form.const(0, nbits)}, {kind} {result}")


@emits("setp", "set")
def compare(e: Emitter, ins: ir.Instruction) -> None:
    """setp.cmp[.bool].type p[|q], a, b[, c]: q is the complement of the comparison, combined likewise."""
    if ins.opcode == "setp":
        target_type, type_index = "pred", -1
    else:
        target_type, type_index = ins.modifiers[-2], -1
    kind = ins.modifiers[type_index]
    if kind.endswith("x2"):
        _compare_packed(e, ins, kind)
        return
    nbits = ir.TYPE_NBITS[kind]
    operands = ins.operands[1:]
    combine = ins.one_of("and", "or", "xor")
    form, args = e.sources(ins, operands, nbits, nbits, 1, any_nan=kind == "f32")
    result = compare_values(e, form, ins.modifiers[0], kind, args[0], args[1], ins.has("ftz"))
    flag = form.int(1)
    second = None
    target = ins.operands[0]
    first_target = target.first if isinstance(target, ir.Pair) else target
    if isinstance(target, ir.Pair) and target.second is not None:
        second = e.v(f"xor {flag} {result}, {form.const(1, 1)}")
    if combine is not None:
        result = e.v(f"{combine} {flag} {result}, {args[2]}")
        second = e.v(f"{combine} {flag} {second}, {args[2]}") if second else None
    if ins.opcode == "set":
        out = ir.TYPE_NBITS[target_type]
        true = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}.get(target_type, -1)
        result = e.v(
            f"select {flag} {result}, {form.int(out)} {form.const(true, out)}, {form.int(out)} {form.const(0, out)}"
        )
        e.put(first_target, form, result, out)
        return
    e.put(first_target, form, result, 1)
    if isinstance(target, ir.Pair) and second is not None:
        e.put(target.second, form, second, 1)
    if combine is None and e.guard is None and not is_float(kind) and isinstance(first_target, ir.Reg):
        _remember_bound(e, ins, first_target, nbits)


_BELOW = {"lt": ("lt", True), "le": ("le", True), "lo": ("lt", True), "ls": ("le", True),
          "ge": ("lt", False), "gt": ("le", False), "hs": ("lt", False), "hi": ("le", False)}  # fmt: skip
_SWAPPED = {"lt": "gt", "le": "ge", "lo": "hi", "ls": "hs", "gt": "lt", "ge": "le", "hi": "lo", "hs": "ls"}


def _remember_bound(e: Emitter, ins: ir.Instruction, target: ir.Reg, nbits: int) -> None:
    """Let a branch on the result look at the highest lane alone: see Emitter.bounds."""
    name = ins.modifiers[0]
    index, limit = (e.read(operand, nbits) for operand in ins.operands[1:3])
    if index.uniform:
        index, limit, name = limit, index, _SWAPPED.get(name, "")
    if name in _BELOW and limit.uniform and index.pattern.known and min(index.pattern.offsets()) == 0:
        relation, holds = _BELOW[name]
        signed = ins.modifiers[-1][0] == "s"
        e.bounds[target] = Bound(index, limit, f"{'s' if signed else 'u'}{relation}", holds)


def compare_values(e: Emitter, form: Form, name: str, kind: str, a: str, b: str, ftz: bool = False) -> str:
    """One comparison, an i1 a lane."""
    from vgpusim.codegen import emit_float

    nbits = ir.TYPE_NBITS[kind]
    if is_float(kind):
        element, x = emit_float.operand(e, form, a, kind, ftz)
        _, y = emit_float.operand(e, form, b, kind, ftz)
        if name not in _FLOAT_COMPARE:
            raise e.malformed(f"no comparison .{name} of floats")
        return e.v(f"fcmp {_FLOAT_COMPARE[name]} {form.of(element)} {x}, {y}")
    condition = _INT_COMPARE.get(name) or ("s" if kind[0] == "s" else "u") + name
    if name not in _BELOW and name not in _INT_COMPARE:
        raise e.malformed(f"no comparison .{name} of integers")
    return e.v(f"icmp {condition} {form.int(nbits)} {a}, {b}")


def _compare_packed(e: Emitter, ins: ir.Instruction, kind: str) -> None:
    """setp/set on f16x2 and bf16x2: one result a half."""
    form, args = e.sources(ins, ins.operands[1:], 32, 32, 1)
    if len(args) > 2:
        raise e.unsupported("combined packed comparison")
    halves = []
    for shift_by in (0, 16):
        parts = [e.resize(form, e.v(f"lshr {form.int(32)} {a}, {form.const(shift_by, 32)}"), 32, 16) for a in args[:2]]
        halves.append(compare_values(e, form, ins.modifiers[0], kind[:-2], parts[0], parts[1], ins.has("ftz")))
    target = ins.operands[0]
    if ins.opcode == "setp":
        assert isinstance(target, ir.Pair)
        e.put(target.first, form, halves[0], 1)
        e.put(target.second, form, halves[1], 1)
        return
    true = {"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(ins.modifiers[-2], 0xFFFF)
    words = [
        e.v(f"select {form.int(1)} {h}, {form.int(32)} {form.const(true << s, 32)}, {form.int(32)} {form.const(0, 32)}")
        for h, s in zip(halves, (0, 16), strict=True)
    ]
    e.put(target, form, e.v(f"or {form.int(32)} {words[0]}, {words[1]}"), 32)


@emits("selp")
def select(e: Emitter, ins: ir.Instruction) -> None:
    nbits = ir.TYPE_NBITS[ins.type]
    form, (a, b, p) = e.sources(ins, ins.operands[1:], nbits, nbits, 1, any_nan=e.defers_nan)
    kind = form.int(nbits)
    e.put(ins.operands[0], form, e.v(f"select {form.int(1)} {p}, {kind} {a}, {kind} {b}"), nbits)


@emits("slct")
def select_by_sign(e: Emitter, ins: ir.Instruction) -> None:
    kind, control = ins.modifiers[-2:]
    nbits = ir.TYPE_NBITS[kind]
    form, (a, b, c) = e.sources(ins, ins.operands[1:], nbits, nbits, 32)
    chosen = compare_values(e, form, "ge", control, c, form.const(0, 32), ins.has("ftz"))
    e.put(
        ins.operands[0],
        form,
        e.v(f"select {form.int(1)} {chosen}, {form.int(nbits)} {a}, {form.int(nbits)} {b}"),
        nbits,
    )


@emits("sad")
def sum_of_differences(e: Emitter, ins: ir.Instruction) -> None:
    nbits = ir.TYPE_NBITS[ins.type]
    form, (a, b, c) = e.sources(ins, ins.operands[1:], nbits)
    prefix = "s" if ins.type[0] == "s" else "u"
    high, low = (e.icall(form, f"{prefix}{name}", nbits, a, b) for name in ("max", "min"))
    kind = form.int(nbits)
    e.put(ins.operands[0], form, e.v(f"add {kind} {e.v(f'sub {kind} {high}, {low}')}, {c}"), nbits)
