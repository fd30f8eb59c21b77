"""Instructions that exchange values between the lanes of a warp. Lanes that do not execute the instruction, or that the
member mask leaves out, contribute nothing; a lane that reads from one gets its own value (undefined on a GPU)."""

from __future__ import annotations

from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_pattern import UNIFORM
from vgpusim.codegen.lane_value import LANES, SCALAR, Value
from vgpusim.ptx import ir

_LANE_IDS = "<" + ", ".join(f"i32 {lane}" for lane in range(WARP)) + ">"
_V = LANES.int(32)
_M = LANES.int(1)


def bits_of(e: Emitter, flags: str) -> str:
    return e.v(f"bitcast {_M} {flags} to i32")


def flags_of(e: Emitter, bits: str) -> str:
    return e.v(f"bitcast i32 {bits} to {_M}")


@emits("activemask")
def active_mask(e: Emitter, ins: ir.Instruction) -> None:
    e.put(ins.operands[0], SCALAR, e.current, 32)


@emits("shfl")
def shuffle(e: Emitter, ins: ir.Instruction) -> None:
    """shfl.sync.mode.b32 d[|p], a, b, c[, membermask]: c holds the clamp in bits 4..0, the segment mask in 12..8."""
    mode = ins.one_of("up", "down", "bfly", "idx")
    if mode is None:
        raise e.malformed("shuffle mode missing")
    target = ins.operands[0]
    first: ir.Operand | None = target.first if isinstance(target, ir.Pair) else target
    second = target.second if isinstance(target, ir.Pair) else None
    known, limits = (e.analysis.constant(operand) for operand in ins.operands[2:4])
    if known is not None and limits is not None:
        _shuffle_constant(e, ins, mode, known, limits, first, second)
        return
    a, b, c = e.lanes(ins.operands[1:4], 32)
    clamp = e.v(f"and {_V} {c}, splat (i32 31)")
    segment = e.v(f"and {_V} {e.v(f'lshr {_V} {c}, splat (i32 8)')}, splat (i32 31)")
    amount = e.v(f"and {_V} {b}, splat (i32 31)")
    outside = e.v(f"xor {_V} {segment}, splat (i32 31)")
    low = e.v(f"and {_V} {_LANE_IDS}, {segment}")
    high = e.v(f"or {_V} {low}, {e.v(f'and {_V} {clamp}, {outside}')}")
    if mode == "up":
        source = e.v(f"sub {_V} {_LANE_IDS}, {amount}")
        within = e.v(f"icmp sge {_V} {source}, {high}")
    else:
        if mode == "down":
            source = e.v(f"add {_V} {_LANE_IDS}, {amount}")
        elif mode == "bfly":
            source = e.v(f"xor {_V} {_LANE_IDS}, {amount}")
        else:
            source = e.v(f"or {_V} {low}, {e.v(f'and {_V} {amount}, {outside}')}")
        within = e.v(f"icmp sle {_V} {source}, {high}")
    chosen = e.v(f"select {_M} {within}, {_V} {source}, {_V} {_LANE_IDS}")
    chosen = e.v(f"and {_V} {chosen}, splat (i32 31)")
    present = _present(e, ins)
    if present != "-1":
        shifted = e.v(f"lshr {_V} {e.splat(present, 'i32')}, {chosen}")
        exists = e.v(f"trunc {_V} {shifted} to {_M}")
        chosen = e.v(f"select {_M} {exists}, {_V} {chosen}, {_V} {_LANE_IDS}")
    e.put(first, LANES, permute(e, a, chosen), 32)
    if second is not None:
        e.put(second, LANES, within, 1)


def _present(e: Emitter, ins: ir.Instruction) -> str:
    """The lanes a shuffle may read from, an i32."""
    present = e.mask_bits()
    if ins.has("sync") and len(ins.operands) > 4:
        members = e.read(ins.operands[4], 32)
        constant = e.analysis.constant(ins.operands[4])
        if members.uniform and (constant is None or constant & 0xFFFFFFFF != 0xFFFFFFFF):
            present = members.text if present == "-1" else e.v(f"and i32 {present}, {members.text}")
    return present


def _shuffle_constant(
    e: Emitter, ins: ir.Instruction, mode: str, b: int, c: int, first: ir.Operand | None, second: ir.Reg | None
) -> None:
    """shuffle() with source lanes that are known at compile time: one shufflevector."""
    b, segment, clamp = b & 31, c >> 8 & 31, c & 31
    source, within = [], []
    for lane in range(WARP):
        low = lane & segment
        high = low | (clamp & ~segment & 31)
        wanted = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": low | (b & ~segment & 31)}[mode]
        inside = wanted >= high if mode == "up" else wanted <= high
        source.append(wanted & 31 if inside else lane)
        within.append(inside)
    index = "<" + ", ".join(f"i32 {lane}" for lane in source) + ">"
    (a,) = e.lanes(ins.operands[1:2], 32)
    result = e.v(f"shufflevector {_V} {a}, {_V} poison, {_V} {index}")
    present = _present(e, ins)
    if present != "-1":
        flags = flags_of(e, present)
        exists = e.v(f"shufflevector {_M} {flags}, {_M} poison, {_V} {index}")
        result = e.v(f"select {_M} {exists}, {_V} {result}, {_V} {a}")
    e.put(first, LANES, result, 32)
    if second is not None:
        e.put(second, LANES, "<" + ", ".join(f"i1 {str(x).lower()}" for x in within) + ">", 1)


def permute(e: Emitter, value: str, index: str) -> str:
    """value[index[lane]] for each lane; out of line, because LLVM expands it."""
    e.helper("permute", _PERMUTE)
    return e.v(f"call {_V} @permute({_V} {value}, {_V} {index})")


_PERMUTE = (
    "define internal <32 x i32> @permute(<32 x i32> %a, <32 x i32> %i) noinline #0 {\n"
    + "".join(
        f"  %x{lane} = extractelement <32 x i32> %i, i32 {lane}\n"
        f"  %y{lane} = extractelement <32 x i32> %a, i32 %x{lane}\n"
        f"  %z{lane} = insertelement <32 x i32> {'poison' if lane == 0 else f'%z{lane - 1}'}, "
        f"i32 %y{lane}, i32 {lane}\n"
        for lane in range(WARP)
    )
    + "  ret <32 x i32> %z31\n}\n"
)


def members_of(e: Emitter, operand: ir.Operand | None) -> str:
    """The member mask of each lane as a vector, restricted to the lanes that execute."""
    present = e.mask_bits()
    if operand is None:
        return e.vector(Value(present, 32, UNIFORM))
    mask = e.read(operand, 32)
    vector = e.vector(mask)
    if present == "-1":
        return vector
    return e.v(f"and {_V} {vector}, {e.splat(present, 'i32')}")


@emits("vote")
def vote(e: Emitter, ins: ir.Instruction) -> None:
    mode = ins.one_of("all", "any", "uni", "ballot")
    (predicate,) = e.lanes(ins.operands[1:2], 1)
    true = bits_of(e, predicate)
    mask_operand = ins.operands[2] if ins.has("sync") else None
    mask = e.read(mask_operand, 32) if mask_operand is not None else Value("-1", 32, UNIFORM)
    if mask.uniform:
        present = e.mask_bits()
        members = mask.text
        if present != "-1":
            members = e.v(f"and i32 {mask.text}, {present}")
        form, yes = SCALAR, e.v(f"and i32 {true}, {members}")
    else:
        form, members = LANES, members_of(e, mask_operand)
        yes = e.v(f"and {_V} {e.splat(true, 'i32')}, {members}")
    kind, zero = form.int(32), form.const(0, 32)
    match mode:
        case "ballot":
            e.put(ins.operands[0], form, yes, 32)
            return
        case "any":
            result = e.v(f"icmp ne {kind} {yes}, {zero}")
        case "all":
            result = e.v(f"icmp eq {kind} {yes}, {members}")
        case "uni":
            none = e.v(f"icmp eq {kind} {yes}, {zero}")
            result = e.v(f"or {form.int(1)} {none}, {e.v(f'icmp eq {kind} {yes}, {members}')}")
        case _:
            raise e.malformed("vote mode missing")
    e.put(ins.operands[0], form, result, 1)


@emits("match")
def match_lanes(e: Emitter, ins: ir.Instruction) -> None:
    """match.any: the lanes with my value. match.all: all members if all agree, and p says so."""
    nbits = ir.TYPE_NBITS[ins.type]
    (value,) = e.lanes(ins.operands[1:2], nbits)
    members = members_of(e, ins.operands[2])
    element = e.spread("operand", value, nbits)
    same = LANES.const(0, 32)
    for lane in range(WARP):
        equal = e.v(f"icmp eq {LANES.int(nbits)} {value}, {e.splat(element(str(lane)), f'i{nbits}')}")
        bit = e.v(f"select {_M} {equal}, {_V} {LANES.const(1 << lane, 32)}, {_V} {LANES.const(0, 32)}")
        same = e.v(f"or {_V} {same}, {bit}")
    same = e.v(f"and {_V} {same}, {members}")
    target = ins.operands[0]
    first = target.first if isinstance(target, ir.Pair) else target
    if ins.has("all"):
        agree = e.v(f"icmp eq {_V} {same}, {members}")
        same = e.v(f"select {_M} {agree}, {_V} {same}, {_V} {LANES.const(0, 32)}")
        if isinstance(target, ir.Pair) and target.second is not None:
            e.put(target.second, LANES, agree, 1)
    e.put(first, LANES, same, 32)


@emits("redux")
def reduce_lanes(e: Emitter, ins: ir.Instruction) -> None:
    name = ins.one_of("add", "min", "max", "and", "or", "xor")
    single = ins.type == "f32"
    if name is None or (single and name not in ("min", "max")):
        raise e.unsupported()
    signed = ins.type[0] == "s"
    identity = {"add": 0, "or": 0, "xor": 0, "and": -1}.get(name)
    if identity is None:
        low, high = (-(1 << 31), (1 << 31) - 1) if signed else (0, (1 << 32) - 1)
        identity = high if name == "min" else low
    if single:  # a NaN loses, or with .NaN wins
        quiet = 0x7F800000 if name == "min" else 0xFF800000
        identity = quiet if ins.has("NaN") else 0x7FFFFFFF
    prefix = ("s" if signed else "u") if name in ("min", "max") else ""
    (value,) = e.lanes(ins.operands[1:2], 32)
    if single and ins.has("abs"):
        value = e.v(f"and {_V} {value}, {LANES.const(0x7FFFFFFF, 32)}")
    mask = e.read(ins.operands[2], 32)

    def reduce(flags: str) -> str:
        chosen = e.v(f"select {_M} {flags}, {_V} {value}, {_V} {LANES.const(identity, 32)}")
        if single:
            floats = LANES.of("float")
            kind = ("fminimum" if name == "min" else "fmaximum") if ins.has("NaN") else f"f{name}"
            operand = (floats, e.v(f"bitcast {_V} {chosen} to {floats}"))
            reduced = e.v(e.call("float", f"llvm.vector.reduce.{kind}.v32f32", operand))
            bits = e.v(f"bitcast float {reduced} to i32")
            nan = e.v(f"fcmp uno float {reduced}, {reduced}")
            return e.v(f"select i1 {nan}, i32 {0x7FFFFFFF}, i32 {bits}")
        return e.v(e.call("i32", f"llvm.vector.reduce.{prefix}{name}.v32i32", (_V, chosen)))

    present = e.mask_bits()
    if mask.uniform:
        members = mask.text if present == "-1" else e.v(f"and i32 {mask.text}, {present}")
        e.put(ins.operands[0], SCALAR, reduce(flags_of(e, members) if members != "-1" else LANES.const(1, 1)), 32)
        return
    member = e.spread("operand", members_of(e, ins.operands[2]), 32)
    result = e.stack("result0.32", f"[{WARP} x i32]")

    def body(lane: str) -> None:
        text = reduce(flags_of(e, member(lane)))
        e.e(f"store i32 {text}, ptr {e.v(f'getelementptr i32, ptr {result}, i32 {lane}')}")

    e.each_lane(body)
    e.put(ins.operands[0], LANES, e.v(f"load {_V}, ptr {result}, align 64"), 32)


@emits("elect")
def elect(e: Emitter, ins: ir.Instruction) -> None:
    """elect.sync d|p, membermask: the lowest member is elected."""
    target = ins.operands[0]
    members = members_of(e, ins.operands[1])
    leader = e.icall(LANES, "cttz", 32, members, flag=True)
    if isinstance(target, ir.Pair):
        e.put(target.first, LANES, leader, 32)
        e.put(target.second, LANES, e.v(f"icmp eq {_V} {leader}, {_LANE_IDS}"), 1)
