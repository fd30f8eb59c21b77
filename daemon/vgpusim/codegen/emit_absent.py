"""Calls through pointers that may reach more functions than a kernel can hold.

A kernel is compiled with none of them. A warp that comes to such a call asks for the function: if the launch has not
changed memory that anyone else sees, nobody can tell that it began, so the kernel is compiled with the function, and
the launch begins again (device/vgx_sim_run.c). Before that it goes on, as if the function did nothing, and changes no
such memory any more: so it finds the functions of its other calls, too. So these kernels ask when they are about to
change such memory: shared, local and parameter memory, all in the slots of vgx_sim_reach.h, do not count."""

from __future__ import annotations

from vgpusim.codegen import abi
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_pattern import UNIFORM
from vgpusim.codegen.lane_value import LANES, Value
from vgpusim.ptx import ir

_OWN = ("shared", "local", "param")
_WRITES = ("st", "atom", "red", "stmatrix")
# Instructions that change memory, print or launch, whatever their operands are.
_CHANGES = ("call", "sust", "sured", "multimem", "tensormap")


def ask(e: Emitter, message: str, pointer: ir.Operand) -> None:
    """Ask for the function of each acting lane."""
    addresses = e.spread("absent", e.vector(e.read(pointer, 64)), 64)

    def body(lane: str) -> None:
        listed = (("i64", addresses(lane)), ("ptr", message), *e.thread_place(lane))
        e.e(e.service(abi.SERVICE_ABSENT, "void", *listed))

    e.each_lane(body)


def kept(e: Emitter, ins: ir.Instruction) -> Value | None:
    """Whether an instruction that changes what others see is executed: not once the launch is to begin again. None:
    always. An instruction with results ends such a launch instead, for what follows depends on them."""
    if not e.program.begins_again or not _changes(e, ins):
        return None
    e.guard = None if ins.guard is None else e.read(ir.Not(ins.guard) if ins.guard_negated else ins.guard, 1)
    lanes = e.mask_bits()
    e.guard = None
    operand = next((o for o in ins.operands if isinstance(o, ir.Address)), None)
    if operand is not None and ins.opcode not in _CHANGES and not ins.has("global"):
        at = e.vector(e.read(operand.base, 64))
        if operand.offset:
            at = e.v(f"add {LANES.int(64)} {at}, {LANES.const(operand.offset, 64)}")
        begin = e.v(f"load i64, ptr {e.v(f'getelementptr i8, ptr %services, i64 {abi.SERVICES_OWN_BEGIN}')}, align 8")
        below = e.v(f"icmp ult {LANES.int(64)} {at}, {e.splat(begin, 'i64')}")
        lanes = e.v(f"and i{WARP} {e.v(f'bitcast {LANES.int(1)} {below} to i{WARP}')}, {lanes}")
    acts = e.v(f"icmp ne i{WARP} {lanes}, 0")
    state = e.v(f"getelementptr i8, ptr %services, i64 {abi.SERVICES_CHANGED}")
    known = e.v(f"icmp eq i32 {e.v(f'load atomic i32, ptr {state} monotonic, align 4')}, {abi.CHANGED}")
    asks = e.v(f"and i1 {acts}, {e.v(f'xor i1 {known}, true')}")
    place, name = e.stack("kept", "i32"), e.unique("change")
    e.e(f"store i32 1, ptr {place}, align 4")
    e.e(f"br i1 {asks}, label %{name}, label %{name}.done")
    e.label(name)
    may_skip = int(ins.opcode != "atom" and not (ins.opcode == "call" and _has_results(ins)))
    answer = e.v(e.service(abi.SERVICE_CHANGE, "i32", ("i32", str(may_skip))))
    e.e(f"store i32 {answer}, ptr {place}, align 4")
    e.e(f"br label %{name}.done")
    e.label(f"{name}.done")
    return Value(e.v(f"icmp ne i32 {e.v(f'load i32, ptr {place}, align 4')}, 0"), 1, UNIFORM)


def _changes(e: Emitter, ins: ir.Instruction) -> bool:
    """Whether an instruction may change what others see."""
    if ins.opcode in _CHANGES:
        return True
    if ins.opcode == "cp" and ins.has("bulk"):
        spaces = [m for m in ins.modifiers if m == "global" or m.startswith("shared")]  # the first is written to
        return spaces[:1] == ["global"] and not ins.has("prefetch")
    if ins.opcode not in _WRITES and not (ins.opcode == "wmma" and ins.has("store")):
        return False
    bases = [operand.base for operand in ins.operands if isinstance(operand, ir.Address)]
    is_own = any(m.startswith(_OWN) for m in ins.modifiers)
    return not is_own and not any(isinstance(b, ir.Symbol) and b.name in e.program.shared for b in bases)


def _has_results(ins: ir.Instruction) -> bool:
    results = ins.operands[0]
    return isinstance(results, ir.Vector) and bool(results.items)
