"""Calls through pointers that may reach more functions than a kernel can hold.

A kernel is compiled with none of them. A warp that comes to such a call asks for the function: if the launch has not
changed memory that anyone else sees, nobody can tell that it began, so the kernel is compiled with the function, and
the launch begins again (device/vgx_sim_run.c). Before that it goes on, as if the function did nothing, to the first
change of such memory: so it finds the functions of its other calls, too. So these kernels note when they are about to
change such memory: shared, local and parameter memory, all in the slots of vgx_sim_reach.h, do not count."""

from __future__ import annotations

from vgpusim.codegen import abi
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES, Value
from vgpusim.ptx import ir

_OWN = ("shared", "local", "param")
# Instructions that change memory, print or launch, whatever their operands are.
_CHANGES = ("call", "sust", "sured", "multimem", "tensormap")


def ask(e: Emitter, message: str, pointer: ir.Operand) -> None:
    """Ask for the function of each acting lane."""
    addresses = e.spread("absent", e.vector(e.read(pointer, 64)), 64)

    def body(lane: str) -> None:
        listed = (("i64", addresses(lane)), ("ptr", message), *e.thread_place(lane))
        e.e(e.service(abi.SERVICE_ABSENT, "void", *listed))

    e.each_lane(body)


def note(e: Emitter, ins: ir.Instruction) -> None:
    """Note an instruction that changes what others see, whatever its addresses are."""
    if e.program.begins_again and (ins.opcode in _CHANGES or (ins.opcode == "cp" and ins.has("bulk"))):
        _store(e)


def note_write(e: Emitter, ins: ir.Instruction, space: str, at: Value) -> None:
    """Note an access to memory, if it writes."""
    if not e.program.begins_again or space in _OWN or ins.opcode not in ("st", "atom", "red", "stmatrix"):
        return
    if space == "global":
        e.if_any(lambda: _store(e))
        return
    begin = e.v(f"load i64, ptr {e.v(f'getelementptr i8, ptr %services, i64 {abi.SERVICES_OWN_BEGIN}')}, align 8")
    below = e.v(f"icmp ult {LANES.int(64)} {e.vector(at)}, {e.splat(begin, 'i64')}")
    lanes = e.v(f"and i{WARP} {e.v(f'bitcast {LANES.int(1)} {below} to i{WARP}')}, {e.mask_bits()}")
    name = e.unique("others")
    e.e(f"br i1 {e.v(f'icmp ne i{WARP} {lanes}, 0')}, label %{name}, label %{name}.not")
    e.label(name)
    _store(e)
    e.e(f"br label %{name}.not")
    e.label(f"{name}.not")


def _store(e: Emitter) -> None:
    place = e.v(f"getelementptr i8, ptr %services, i64 {abi.SERVICES_CHANGED}")
    state = e.v(f"load atomic i32, ptr {place} monotonic, align 4")
    name = e.unique("change")
    e.e(f"br i1 {e.v(f'icmp eq i32 {state}, {abi.CHANGED}')}, label %{name}.done, label %{name}")
    e.label(name)
    e.e(e.service(abi.SERVICE_CHANGE, "void"))
    e.e(f"br label %{name}.done")
    e.label(f"{name}.done")
