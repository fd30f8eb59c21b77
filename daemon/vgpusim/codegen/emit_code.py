"""The description of a kernel's code, for the scheduler: struct vgx_sim_code of device/vgx_sim_abi.h, as data."""

from __future__ import annotations

from enum import IntEnum

from vgpusim.codegen import abi
from vgpusim.codegen.emit_cluster import Dimensions
from vgpusim.codegen.emit_layout import FrameLayout

CODE_SYMBOL = "vgx_code"
MEMBERS = {
    "warp": "ptr",
    "frames_nbytes": "i64",
    "locals_nbytes": "i64",
    "turn": "i64",
    "warp_count": "i32",
    "turns": "i32",
    "cluster": "[3 x i32]",
    "flush": "i32",
}


class Turns(IntEnum):
    """enum vgx_sim_turns."""

    IN_ORDER = 0
    LOCKSTEP = 1
    BARRIERS = 2
    RESIDENT = 3
    CLUSTERS = 4
    INTERLEAVED = 5
    ROWS = 6


_ROW_INSTRUCTIONS = 300  # largest kernel with Turns.ROWS: in larger ones the cost of a call does not matter

# Runs `count` CTAs that are neighbours in x, beginning with thread->cta, unless the launch stops. @warp is inlined, so
# that LLVM hoists loads that are the same for all of them, such as parameters, out of the loops.
_ROW = f"""define internal i32 @row(ptr %launch, ptr %thread, i32 %count, i32 %unused) noinline #0 {{
entry:
  %stop.p = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_STOP}
  %stop = load ptr, ptr %stop.p, align 8, !invariant.load !0
  %cta.p = getelementptr i8, ptr %thread, i64 {abi.THREAD_CTA}
  %first = load i32, ptr %cta.p, align 4
  br label %cta
cta:
  %i = phi i32 [ 0, %entry ], [ %i.n, %next ]
  %x = add i32 %first, %i
  store atomic i32 %x, ptr %cta.p monotonic, align 4
  br label %warp
warp:
  %w = phi i32 [ 0, %cta ], [ %w.n, %warp ]
  %ended = call i32 @warp(ptr %launch, ptr %thread, i32 %x, i32 %w)
  %w.n = add nuw i32 %w, 1
  %more = icmp ult i32 %w.n, WARPS
  br i1 %more, label %warp, label %next, !llvm.loop !2
next:
  %i.n = add nuw i32 %i, 1
  %left = icmp ult i32 %i.n, %count
  %stopped = load atomic i32, ptr %stop monotonic, align 4
  %runs = icmp eq i32 %stopped, 0
  %on = and i1 %left, %runs
  br i1 %on, label %cta, label %done, !llvm.loop !3
done:
  ret i32 0
}}
"""
LOOPS = '!2 = distinct !{!2, !4}\n!3 = distinct !{!3, !4}\n!4 = !{!"llvm.loop.unroll.disable"}\n'  # metadata of _ROW


def row_of(warp_count: int) -> str:
    """Text of the function that runs CTAs of a row."""
    return _ROW.replace("WARPS", str(warp_count))


def turns_of(
    barriers: bool, resident: bool, interleaved: bool, lockstep: bool, cluster: Dimensions | None, instructions: int
) -> Turns:
    """How the warps of a kernel of so many instructions take turns."""
    if cluster is not None:
        return Turns.CLUSTERS
    if resident:
        return Turns.RESIDENT
    if interleaved:
        return Turns.INTERLEAVED
    if lockstep:
        return Turns.LOCKSTEP
    if barriers:
        return Turns.BARRIERS
    return Turns.ROWS if instructions <= _ROW_INSTRUCTIONS else Turns.IN_ORDER


def describe(warp_count: int, frame: FrameLayout, turns: Turns, flush: bool, cluster: Dimensions | None) -> str:
    """Text of the description."""
    axes = ", ".join(f"i32 {count}" for count in cluster or (1, 1, 1))
    function = "@row" if turns is Turns.ROWS else "@warp"
    values = (function, frame.nbytes, frame.locals_nbytes, frame.turn, warp_count, turns.value, f"[{axes}]", int(flush))
    members = [f"{kind} {value}" for kind, value in zip(MEMBERS.values(), values, strict=True)]
    return f"@{CODE_SYMBOL} = constant {{ {', '.join(MEMBERS.values())} }} {{ {', '.join(members)} }}\n"
