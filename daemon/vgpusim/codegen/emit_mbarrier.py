"""mbarrier objects, and the bulk copies that report to them.

The object is opaque; this layout, from bit 0: 21 bits of bytes still expected (modulo 2**21), 21 of arrivals still
pending, 20 of arrivals expected in a phase, one unused, and at the top the parity of the running phase. Shared memory
belongs to the thread that runs the CTA, so plain reads and writes are atomic; lanes act one after another. Copies are
done immediately. A waiting lane tests in a loop, where its warp yields (cfg.may_wait)."""

from __future__ import annotations

from collections.abc import Callable

from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_access import address
from vgpusim.codegen.emit_memory import pointer, space_of
from vgpusim.codegen.emit_tensor_copy import each_destination, tensor_copy
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import LANES, Value
from vgpusim.ptx import ir

_MAX_COUNT = (1 << 20) - 1
_UPDATE = """define internal i64 @mbarrier(ptr %p, i64 %arrivals, i64 %nbytes, i64 %dropped, i1 %ends) noinline #0 {
  %old = load volatile i64, ptr %p, align 8
  %tx.old = add i64 %old, %nbytes
  %tx = and i64 %tx.old, 2097151
  %pending.0 = lshr i64 %old, 21
  %pending.1 = sub i64 %pending.0, %arrivals
  %pending = and i64 %pending.1, 2097151
  %expected.0 = lshr i64 %old, 42
  %expected.1 = sub i64 %expected.0, %dropped
  %expected = and i64 %expected.1, 1048575
  %parity = and i64 %old, -9223372036854775808
  %left = or i64 %tx, %pending
  %all = icmp eq i64 %left, 0
  %done = and i1 %all, %ends
  %turned = xor i64 %parity, -9223372036854775808
  %parity.n = select i1 %done, i64 %turned, i64 %parity
  %pending.n = select i1 %done, i64 %expected, i64 %pending
  %e = shl i64 %expected, 42
  %q = shl i64 %pending.n, 21
  %w0 = or i64 %parity.n, %e
  %w1 = or i64 %w0, %q
  %new = or i64 %w1, %tx
  store volatile i64 %new, ptr %p, align 8
  ret i64 %old
}
"""


def _update(
    e: Emitter, place: str, arrivals: str = "0", nbytes: str = "0", dropped: str = "0", completes: bool = True
) -> str:
    """Text of a call that updates the object and returns its previous value."""
    e.helper("mbarrier", _UPDATE)
    numbers = ", ".join(f"i64 {number}" for number in (arrivals, nbytes, dropped))
    return f"call i64 @mbarrier(ptr {place}, {numbers}, i1 {'true' if completes else 'false'})"


def _object(e: Emitter, ins: ir.Instruction, operand: ir.Operand) -> Value:
    """The checked addresses of the objects that lanes name."""
    return address(e, ins, operand, space_of(e, ins), 8, 1, "atomic")


@emits("mbarrier")
def mbarrier(e: Emitter, ins: ir.Instruction) -> None:
    name = ins.modifiers[0] if ins.modifiers else ""
    match name:
        case "init" | "expect_tx" | "complete_tx" | "arrive" | "arrive_drop":
            _change(e, ins, name)
        case "inval":
            pass
        case "test_wait" | "try_wait":
            _test(e, ins)
        case "pending_count":
            (state,) = e.lanes(ins.operands[1:2], 64)
            kind = LANES.int(64)
            pending = e.v(f"and {kind} {e.v(f'lshr {kind} {state}, splat (i64 21)')}, splat (i64 2097151)")
            e.put(ins.operands[0], LANES, e.resize(LANES, pending, 64, 32), 32)
        case _:
            raise e.unsupported()


def _change(e: Emitter, ins: ir.Instruction, name: str) -> None:
    """init and similar: [object], count. arrive: state, [object]{, count}, or without the state."""
    operands = list(ins.operands)
    target: ir.Operand = ir.Sink() if isinstance(operands[0], ir.Address) else operands.pop(0)
    place = e.spread("address", e.vector(_object(e, ins, operands[0])), 64)
    count = e.spread("operand", e.vector(e.read(operands[1] if len(operands) > 1 else ir.Imm(1), 32)), 32)
    result = e.stack("result0.64", f"[{WARP} x i64]")
    completes = not ins.has("noComplete")

    def body(lane: str) -> None:
        at = pointer(e, place(lane))
        amount = e.v(f"zext i32 {count(lane)} to i64")
        match name:
            case "init":
                limited = e.v(f"and i64 {amount}, {_MAX_COUNT}")
                both = e.v(f"or i64 {e.v(f'shl i64 {limited}, 42')}, {e.v(f'shl i64 {limited}, 21')}")
                e.e(f"store volatile i64 {both}, ptr {at}, align 8")
                return
            case "expect_tx":
                e.v(_update(e, at, nbytes=amount, completes=False))
                return
            case "complete_tx":
                e.v(_update(e, at, nbytes=e.v(f"sub i64 0, {amount}")))
                return
            case "arrive" if ins.has("expect_tx"):
                old = e.v(_update(e, at, "1", amount, completes=completes))
            case "arrive_drop" if ins.has("expect_tx"):
                old = e.v(_update(e, at, "1", amount, "1", completes))
            case "arrive":
                old = e.v(_update(e, at, amount, completes=completes))
            case _:
                old = e.v(_update(e, at, amount, "0", amount, completes))
        e.e(f"store i64 {old}, ptr {e.v(f'getelementptr i64, ptr {result}, i32 {lane}')}")

    e.each_lane(body)
    if name.startswith("arrive"):
        e.put(target, LANES, e.v(f"load {LANES.int(64)}, ptr {result}, align 64"), 64)


def _test(e: Emitter, ins: ir.Instruction) -> None:
    """Whether the phase given by a state or a parity is complete: the running phase then has the other parity."""
    place = e.spread("address", e.vector(_object(e, ins, ins.operands[1])), 64)
    by_parity = ins.has("parity")
    (asked,) = e.lanes(ins.operands[2:3], 32 if by_parity else 64)
    result = e.stack("result0.64", f"[{WARP} x i64]")

    def body(lane: str) -> None:
        text = e.v(f"load volatile i64, ptr {pointer(e, place(lane))}, align 8")
        e.e(f"store i64 {text}, ptr {e.v(f'getelementptr i64, ptr {result}, i32 {lane}')}")

    e.each_lane(body)
    kind, flag = LANES.int(64), LANES.int(1)
    running = e.v(f"icmp slt {kind} {e.v(f'load {kind}, ptr {result}, align 64')}, zeroinitializer")
    if by_parity:
        low = e.v(f"and {LANES.int(32)} {asked}, splat (i32 1)")
        wanted = e.v(f"icmp ne {LANES.int(32)} {low}, zeroinitializer")
    else:
        wanted = e.v(f"icmp slt {kind} {asked}, zeroinitializer")
    e.put(ins.operands[0], LANES, e.v(f"xor {flag} {running}, {wanted}"), 1)


def arrive_after_copies(e: Emitter, ins: ir.Instruction) -> None:
    """cp.async.mbarrier.arrive: the copies are done, so it arrives; without .noinc it would undo its own increment."""
    if not ins.has("noinc"):
        return
    place = e.spread("address", e.vector(_object(e, ins, ins.operands[0])), 64)
    e.each_lane(lambda lane: e.e(_update(e, pointer(e, place(lane)), "1")))


def report(e: Emitter, barrier: str, nbytes: int) -> None:
    """Report bytes of each acting lane to the object at its checked address."""
    place = e.spread("mbarrier", barrier, 64)
    e.each_lane(lambda lane: e.e(_update(e, pointer(e, place(lane)), nbytes=str(-nbytes))))


def bulk_copy(e: Emitter, ins: ir.Instruction) -> None:
    """cp.async.bulk, not of tensors: [to], [from], nbytes{, [mbarrier]}; a prefetch and a wait need nothing."""
    if ins.has("commit_group", "wait_group", "prefetch"):
        return
    if ins.has("tensor"):
        tensor_copy(e, ins, lambda inner, place, nbytes: _update(inner, place, nbytes=nbytes))
        return
    if ins.has("reduce", "cp_mask", "ignore_oob"):
        raise e.unsupported()
    words = [m for m in ins.modifiers if m == "global" or m.startswith("shared")]
    if len(words) != 2:
        raise e.malformed("two state spaces expected")
    spaces = ["shared" if word.startswith("shared") else "global" for word in words]
    size = e.spread("operand2", e.vector(e.read(ins.operands[2], 32)), 32)
    to, source = (
        e.vector(address(e, ins, operand, space, 0, kind=kind, sizes="%operand2.32"))
        for operand, space, kind in zip(ins.operands, spaces, ("write", "read"), strict=False)
    )
    reports = any(m.startswith("mbarrier::complete_tx") for m in ins.modifiers)
    barrier = e.vector(address(e, ins, ins.operands[3], "shared", 8, 1, "atomic")) if reports else None
    if ins.has("multicast::cluster"):
        each_destination(e, ins.operands[4], lambda moved: _bulk(e, to, source, size, barrier, moved))
    else:
        _bulk(e, to, source, size, barrier, "0")


def _bulk(e: Emitter, to: str, source: str, size: Callable[[str], str], barrier: str | None, moved: str) -> None:
    """Copy, and report to the barrier. Target and barrier lie `moved` bytes from the addresses of the operands."""
    targets = e.spread("address", to, 64)
    sources = e.spread("operand", source, 64)
    barriers = e.spread("mbarrier", barrier, 64) if barrier is not None else None

    def body(lane: str) -> None:
        nbytes = e.v(f"zext i32 {size(lane)} to i64")
        target = e.v(f"add i64 {targets(lane)}, {moved}")
        pair = (("ptr", pointer(e, target)), ("ptr", pointer(e, sources(lane))))
        e.e(e.call("void", "llvm.memcpy.p0.p0.i64", *pair, ("i64", nbytes), ("i1", "false")))
        if barriers is not None:
            at = e.v(f"add i64 {barriers(lane)}, {moved}")
            e.v(_update(e, pointer(e, at), nbytes=e.v(f"sub i64 0, {nbytes}")))

    e.each_lane(body)
