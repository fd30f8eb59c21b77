"""The description of a kernel's code, for the scheduler: struct vgx_sim_code of device/vgx_sim_abi.h, as data."""

from __future__ import annotations

from enum import IntEnum

from vgpusim.codegen import abi
from vgpusim.codegen.emit_cluster import Dimensions
from vgpusim.codegen.emit_layout import BARRIER_WORDS, ENDED, RUNNING, FrameLayout

CODE_SYMBOL, QUICK_SYMBOL = "vgx_code", "vgx_quick"
MEMBERS = {
    "warp": "ptr",
    "frames_nbytes": "i64",
    "locals_nbytes": "i64",
    "turn": "i64",
    "warp_count": "i32",
    "turns": "i32",
    "cluster": "[3 x i32]",
    "flush": "i32",
    "quick": "ptr",
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

# Runs each warp that does not wait, once; returns how many have ended, plus ROUND_RAN if one ran. @warp is inlined, so
# that what is the same for all warps is loaded once, and no register of the caller is saved for each of them.
_ROUND = f"""define internal i32 @round(ptr align 8 dereferenceable({abi.LAUNCH_NBYTES}) %launch,
    ptr align 8 dereferenceable({abi.THREAD_NBYTES}) %thread, i32 %unused.1, i32 %unused.2) noinline #0 {{
entry:
  %frames.p = getelementptr i8, ptr %thread, i64 {abi.THREAD_FRAMES}
  %frames = load ptr, ptr %frames.p, align 8, !invariant.load !0
  %waits = getelementptr i32, ptr %frames, i64 {BARRIER_WORDS}
  %states = getelementptr i32, ptr %waits, i64 WARPS
  br label %test
test:
  %w = phi i32 [ 0, %entry ], [ %w.n, %next ]
  %did = phi i32 [ 0, %entry ], [ %did.n, %next ]
  %wait.p = getelementptr i32, ptr %waits, i32 %w
  %wait = load i32, ptr %wait.p, align 4
  %runs = icmp eq i32 %wait, {RUNNING}
  br i1 %runs, label %run, label %next
run:
  %state.p = getelementptr i32, ptr %states, i32 %w
  %state = load i32, ptr %state.p, align 4
  %new = call i32 @warp(ptr %launch, ptr %thread, i32 %state, i32 %w)
  store i32 %new, ptr %state.p, align 4
  %ran = or i32 %did, {abi.ROUND_RAN}
  %ends = icmp eq i32 %new, 0
  br i1 %ends, label %end, label %next
end:
  store i32 {ENDED}, ptr %wait.p, align 4
  %one.more = add i32 %ran, 1
  br label %next
next:
  %did.n = phi i32 [ %did, %test ], [ %ran, %run ], [ %one.more, %end ]
  %w.n = add nuw i32 %w, 1
  %more = icmp ult i32 %w.n, WARPS
  br i1 %more, label %test, label %done, !llvm.loop !2
done:
  ret i32 %did.n
}}
"""
LOOPS = '!2 = distinct !{!2, !4}\n!3 = distinct !{!3, !4}\n!4 = !{!"llvm.loop.unroll.disable"}\n'  # metadata of _ROW


def caller_of(turns: Turns, warp_count: int) -> str:
    """Text of the function that calls @warp: it runs CTAs of a row, or a round of a CTA's warps; "": the scheduler."""
    text = _ROW if turns is Turns.ROWS else "" if turns is Turns.IN_ORDER else _ROUND
    return text.replace("WARPS", str(warp_count))


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
    function = "@row" if turns is Turns.ROWS else "@warp" if turns is Turns.IN_ORDER else "@round"
    values = (
        *(function, frame.nbytes, frame.locals_nbytes, frame.turn, warp_count, turns.value, f"[{axes}]", int(flush)),
        "null",
    )
    members = [f"{kind} {value}" for kind, value in zip(MEMBERS.values(), values, strict=True)]
    return f"@{CODE_SYMBOL} = constant {{ {', '.join(MEMBERS.values())} }} {{ {', '.join(members)} }}\n"


def replaceable(text: str, budget_ns: int) -> str:
    """The text of a kernel whose function may be replaced once it has run for so long (struct vgx_sim_quick)."""
    begin = text.index(f"@{CODE_SYMBOL} = ")
    end = text.index("\n", begin)
    line = text[begin:end].removesuffix("ptr null }") + f"ptr @{QUICK_SYMBOL} }}"
    function = line.partition("{ ptr @")[2].partition(",")[0]
    quick = f"@{QUICK_SYMBOL} = global {{ ptr, i64, i64 }} {{ ptr @{function}, i64 {budget_ns}, i64 0 }}\n"
    return text[:begin] + quick + line + text[end:]
