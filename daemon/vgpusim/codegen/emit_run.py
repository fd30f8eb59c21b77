"""The entry of a compiled kernel: takes CTAs, runs their warps, and releases barriers.

A kernel of a cooperative launch may be resident: all its CTAs have frames and shared memory of their own, and the entry
runs them in turn, one round each, so that CTAs may wait for each other.

Frames of a thread: the tables (see below), then the saved registers of each warp. What kernels can address, local
memory, lies elsewhere: they must not reach what decides where a warp goes on. Tables, in 32-bit words: 17 barriers of 8
words (emit_barrier), then for each warp the barrier it waits at (RUNNING, ENDED), then for each warp the place it
resumes at, then for each warp whether it has arrived at its cluster's barrier (emit_cluster). Without barriers one warp
runs after another, in one frame. In a resident kernel each CTA has all this, and after its tables a copy of
vgx_sim_thread with its own shared memory and then the number of its warps that live.

Where every barrier is bar.sync 0 for all (`lockstep`), the warps that have not ended wait at one barrier after each
round, and it is complete: nothing is counted, and of the tables only the place to resume at is used."""

from __future__ import annotations

from vgpusim.codegen import abi, emit_cluster
from vgpusim.codegen.emit_cluster import Dimensions
from vgpusim.codegen.emit_layout import BARRIER_WORDS, DEADLOCK, ENDED, RUNNING, FrameLayout, tables_nbytes
from vgpusim.ptx import ir

RUN_SYMBOL = "vgx_run"
_MXCSR_DEFAULT, _MXCSR_FLUSH = 0x1F80, 0x9FC0  # exceptions masked, to nearest; with FTZ and DAZ


def run_function(
    warp_count: int,
    frame: FrameLayout,
    barriers: bool,
    resident: bool,
    flush: bool,
    deadlock: str,
    x86: bool,
    lockstep: bool,
    cluster: Dimensions | None = None,
) -> str:
    """Text of the entry. `deadlock` is the global that holds the message for services->fail."""
    own_frames = resident or cluster is not None
    thread = "%thread.c" if own_frames else "%thread"
    arguments = (
        f"ptr %launch, ptr {thread}, "
        "ptr {frame}, i64 {local}, ptr %tables, i32 {state}, i32 {warp}, "
        "i32 %cx, i32 %cy, i32 %cz"
    )
    mode = _MXCSR_FLUSH if flush else _MXCSR_DEFAULT
    enter = leave = ""
    if x86:
        enter = (f"  call void @llvm.x86.sse.stmxcsr(ptr %mxcsr.old)\n  store i32 {mode}, ptr %mxcsr\n"
                 "  call void @llvm.x86.sse.ldmxcsr(ptr %mxcsr)\n")  # fmt: skip
        leave = "  call void @llvm.x86.sse.ldmxcsr(ptr %mxcsr.old)\n"
    frames = "%tables" if own_frames else "%frames"
    per_warp = f"""  %fo = mul i64 %w.l, {frame.saved_nbytes if barriers else 0}
  %fo2 = add i64 %fo, {frame.saved}
  %fr = getelementptr i8, ptr {frames}, i64 %fo2
  %lo = mul i64 %w.l, {frame.local_nbytes if barriers else 0}
  %loc.i = add i64 %locals{".c" if own_frames else ""}, %lo
"""
    call = arguments.format(frame="%fr", local="%loc.i", state="%state", warp="%w")
    tables = "  %tables = getelementptr i8, ptr %frames, i64 0\n"
    if cluster is not None:
        one_round = _round(warp_count, per_warp, call, "")
        start = _start(warp_count, "%i.tables", "set", "set.next")
        tables, body = "", emit_cluster.loop(cluster, warp_count, frame, start, one_round, deadlock)
    elif resident:
        tables, body = "", _resident_loop(warp_count, frame, _round(warp_count, per_warp, call, deadlock))
    elif lockstep:
        body = _claim(_lockstep_loop(warp_count, per_warp, call))
    elif barriers:
        body = _claim(_barrier_loop(warp_count, _round(warp_count, per_warp, call, deadlock)))
    else:
        body = _claim(f"""  br label %warps
warps:
  %w = phi i32 [ 0, %cta ], [ %w.n, %warps ]
  %w.l = zext i32 %w to i64
  %state = add i32 0, 0
{per_warp}  %r = call i32 @warp({call})
  %w.n = add i32 %w, 1
  %more = icmp ult i32 %w.n, {warp_count}
  br i1 %more, label %warps, label %next
""")
    declarations = "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)\n" if x86 else ""
    return f"""{declarations}define void @{RUN_SYMBOL}(ptr %launch, ptr %thread) #0 {{
entry:
  %mxcsr = alloca i32
  %mxcsr.old = alloca i32
{enter}  %frames.p = getelementptr i8, ptr %thread, i64 {abi.THREAD_FRAMES}
  %frames = load ptr, ptr %frames.p
  %locals.p = getelementptr i8, ptr %thread, i64 {abi.THREAD_LOCAL}
  %locals = load i64, ptr %locals.p
{tables}  %count.p = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_CTA_COUNT}
  %count = load i64, ptr %count.p
  %stop.p = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_STOP}
  %stop = load ptr, ptr %stop.p
  %gx.p = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_GRID}
  %gx.i = load i32, ptr %gx.p
  %gx = zext i32 %gx.i to i64
  %gy.p = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_GRID + 4}
  %gy.i = load i32, ptr %gy.p
  %gy = zext i32 %gy.i to i64
{body}leave:
{leave}  ret void
}}
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
"""


_COORDINATES = """  %cx.l = urem i64 %c, %gx
  %row = udiv i64 %c, %gx
  %cy.l = urem i64 %row, %gy
  %cz.l = udiv i64 %row, %gy
  %cx = trunc i64 %cx.l to i32
  %cy = trunc i64 %cy.l to i32
  %cz = trunc i64 %cz.l to i32
"""


def _claim(cta: str) -> str:
    """Run CTAs until none is left. `cta` runs number %c, from label %cta to %next."""
    return f"""  %next.p = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_NEXT_CTA}
  %counter = load ptr, ptr %next.p
  %chunk.p = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_CTA_CHUNK}
  %chunk = load i64, ptr %chunk.p
  br label %claim
claim:
  %first = atomicrmw add ptr %counter, i64 %chunk monotonic
  %over = icmp uge i64 %first, %count
  br i1 %over, label %leave, label %take
take:
  %left = sub i64 %count, %first
  %n = call i64 @llvm.umin.i64(i64 %left, i64 %chunk)
  %last = add i64 %first, %n
  br label %check
check:
  %c = phi i64 [ %first, %take ], [ %c.n, %next ]
  %stopped = load volatile i32, ptr %stop
  %go = icmp eq i32 %stopped, 0
  br i1 %go, label %cta, label %leave
cta:
{_COORDINATES}{cta}next:
  %c.n = add i64 %c, 1
  %same = icmp ult i64 %c.n, %last
  br i1 %same, label %check, label %claim
"""


def _start(warp_count: int, tables: str, before: str, after: str) -> str:
    """Clear a CTA's tables: all warps can run. From label `before` to `after`."""
    return f"""  call void @llvm.memset.p0.i64(ptr {tables}, i8 0, i64 {tables_nbytes(warp_count)}, i1 false)
  br label %start
start:
  %s.w = phi i32 [ 0, %{before} ], [ %s.n, %start ]
  %s.i = add i32 %s.w, {BARRIER_WORDS}
  %s.p = getelementptr i32, ptr {tables}, i32 %s.i
  store i32 {RUNNING}, ptr %s.p
  %s.n = add i32 %s.w, 1
  %s.more = icmp ult i32 %s.n, {warp_count}
  br i1 %s.more, label %start, label %{after}
"""


def _barrier_loop(warp_count: int, one_round: str) -> str:
    """Rounds until every warp of the CTA has ended."""
    return f"""{_start(warp_count, "%tables", "cta", "round")}round:
  %live0 = phi i32 [ {warp_count}, %start ], [ %live1, %released ]
  br label %warps
{one_round}released:
  %all = icmp eq i32 %live1, 0
  br i1 %all, label %next, label %round
"""


def _lockstep_loop(warp_count: int, per_warp: str, call: str) -> str:
    """Rounds of all warps until each has ended."""
    return f"""{_start(warp_count, "%tables", "cta", "round")}round:
  %live0 = phi i32 [ {warp_count}, %start ], [ %live2, %round.end ]
  br label %warps
warps:
  %w = phi i32 [ 0, %round ], [ %w.n, %warp.next ]
  %live = phi i32 [ %live0, %round ], [ %live2, %warp.next ]
  %st.i = add i32 %w, {BARRIER_WORDS + warp_count}
  %st.p = getelementptr i32, ptr %tables, i32 %st.i
  %state = load i32, ptr %st.p
  %gone = icmp eq i32 %state, {ENDED}
  br i1 %gone, label %warp.next, label %warp.run
warp.run:
  %w.l = zext i32 %w to i64
{per_warp}  %r = call i32 @warp({call})
  %ended = icmp eq i32 %r, 0
  %to = select i1 %ended, i32 {ENDED}, i32 %r
  store i32 %to, ptr %st.p
  %less = zext i1 %ended to i32
  %live1 = sub i32 %live, %less
  br label %warp.next
warp.next:
  %live2 = phi i32 [ %live, %warps ], [ %live1, %warp.run ]
  %w.n = add i32 %w, 1
  %w.more = icmp ult i32 %w.n, {warp_count}
  br i1 %w.more, label %warps, label %round.end
round.end:
  %all = icmp eq i32 %live2, 0
  br i1 %all, label %next, label %round
"""


def _resident_loop(warp_count: int, frame: FrameLayout, one_round: str) -> str:
    """Rounds over all CTAs until every warp of each has ended."""
    static, dynamic, align = abi.LAUNCH_SHARED_STATIC, abi.LAUNCH_SHARED_DYNAMIC, abi.SHARED_ALIGN
    return f"""  %static.p = getelementptr i8, ptr %launch, i64 {static}
  %static.i = load i32, ptr %static.p
  %static = zext i32 %static.i to i64
  %dynamic.p = getelementptr i8, ptr %launch, i64 {dynamic}
  %dynamic.i = load i32, ptr %dynamic.p
  %dynamic = zext i32 %dynamic.i to i64
  %shared.n = add i64 %static, %dynamic
  %shared.r = add i64 %shared.n, {align - 1}
  %stride = and i64 %shared.r, -{align}
  %shared.p = getelementptr i8, ptr %thread, i64 {abi.THREAD_SHARED}
  %shared = load i64, ptr %shared.p
  br label %set
set:
  %i = phi i64 [ 0, %entry ], [ %i.n, %set.next ]
  %i.o = mul i64 %i, {frame.nbytes}
  %i.tables = getelementptr i8, ptr %frames, i64 %i.o
  %i.thread = getelementptr i8, ptr %i.tables, i64 {frame.thread}
  call void @llvm.memcpy.p0.p0.i64(ptr %i.thread, ptr %thread, i64 {abi.THREAD_NBYTES}, i1 false)
  %i.so = mul i64 %i, %stride
  %i.shared = add i64 %shared, %i.so
  %i.sp = getelementptr i8, ptr %i.thread, i64 {abi.THREAD_SHARED}
  store i64 %i.shared, ptr %i.sp
  %i.lp = getelementptr i8, ptr %i.thread, i64 {abi.THREAD_NBYTES}
  store i32 {warp_count}, ptr %i.lp
{_start(warp_count, "%i.tables", "set", "set.next")}set.next:
  %i.n = add i64 %i, 1
  %i.more = icmp ult i64 %i.n, %count
  br i1 %i.more, label %set, label %pass
pass:
  %stopped = load volatile i32, ptr %stop
  %go = icmp eq i32 %stopped, 0
  br i1 %go, label %cta, label %leave
cta:
  %c = phi i64 [ 0, %pass ], [ %c.n, %next ]
  %some = phi i1 [ false, %pass ], [ %some.n, %next ]
{_COORDINATES}  %c.o = mul i64 %c, {frame.nbytes}
  %c.lo = mul i64 %c, {frame.locals_nbytes}
  %locals.c = add i64 %locals, %c.lo
  %tables = getelementptr i8, ptr %frames, i64 %c.o
  %thread.c = getelementptr i8, ptr %tables, i64 {frame.thread}
  %live.p = getelementptr i8, ptr %thread.c, i64 {abi.THREAD_NBYTES}
  %live0 = load i32, ptr %live.p
  %over = icmp eq i32 %live0, 0
  br i1 %over, label %next, label %round
round:
  br label %warps
{one_round}released:
  store i32 %live1, ptr %live.p
  %lives = icmp ne i32 %live1, 0
  %some.l = or i1 %some, %lives
  br label %next
next:
  %some.n = phi i1 [ %some, %cta ], [ %some.l, %released ]
  %c.n = add i64 %c, 1
  %c.more = icmp ult i64 %c.n, %count
  br i1 %c.more, label %cta, label %around
around:
  br i1 %some.n, label %pass, label %leave
"""


def _round(warp_count: int, per_warp: str, call: str, deadlock: str) -> str:
    """Run each warp that does not wait, then release the barriers that are complete. From label %warps, with %live0
    warps not ended, to %released, with %live1."""
    wait, state = BARRIER_WORDS, BARRIER_WORDS + warp_count
    text = f"""warps:
  %w = phi i32 [ 0, %round ], [ %w.n, %warp.next ]
  %live = phi i32 [ %live0, %round ], [ %live2, %warp.next ]
  %ran = phi i32 [ 0, %round ], [ %ran2, %warp.next ]
  %w.i = add i32 %w, {wait}
  %w.p = getelementptr i32, ptr %tables, i32 %w.i
  %w.wait = load i32, ptr %w.p
  %w.run = icmp eq i32 %w.wait, {RUNNING}
  br i1 %w.run, label %warp.run, label %warp.next
warp.run:
  %w.l = zext i32 %w to i64
  %st.i = add i32 %w, {state}
  %st.p = getelementptr i32, ptr %tables, i32 %st.i
  %state = load i32, ptr %st.p
{per_warp}  %r = call i32 @warp({call})
  store i32 %r, ptr %st.p
  %ended = icmp eq i32 %r, 0
  br i1 %ended, label %warp.end, label %warp.next
warp.end:
  store i32 {ENDED}, ptr %w.p
  %live.n = sub i32 %live, 1
  br label %warp.next
warp.next:
  %live2 = phi i32 [ %live, %warps ], [ %live, %warp.run ], [ %live.n, %warp.end ]
  %ran2 = phi i32 [ %ran, %warps ], [ 1, %warp.run ], [ 1, %warp.end ]
  %w.n = add i32 %w, 1
  %w.more = icmp ult i32 %w.n, {warp_count}
  br i1 %w.more, label %warps, label %release
release:
  %live1 = add i32 %live2, 0
  %none = icmp eq i32 %live1, 0
  br i1 %none, label %released, label %bar
bar:
  %b = phi i32 [ 0, %release ], [ %b.n, %bar.next ]
  %moved = phi i32 [ %ran2, %release ], [ %moved2, %bar.next ]
  %b.row = mul i32 %b, 8
  %b.p = getelementptr i32, ptr %tables, i32 %b.row
  %b.count = load i32, ptr %b.p
  %b.ep = getelementptr i32, ptr %b.p, i32 1
  %b.e = load i32, ptr %b.ep
  %b.all = icmp eq i32 %b.e, 0
  %b.threads = mul i32 %live1, {abi.WARP}
  %b.round = add i32 %b.e, {abi.WARP - 1}
  %b.given = and i32 %b.round, -{abi.WARP}
  %b.need = select i1 %b.all, i32 %b.threads, i32 %b.given
  %b.some = icmp ne i32 %b.count, 0
  %b.full = icmp uge i32 %b.count, %b.need
  %b.go = and i1 %b.some, %b.full
  br i1 %b.go, label %open, label %bar.next
open:
  store i32 0, ptr %b.p
  %b.sp = getelementptr i32, ptr %b.p, i32 2
  %b.sums = load i64, ptr %b.sp, align 4
  %b.rp = getelementptr i32, ptr %b.p, i32 4
  store i64 %b.sums, ptr %b.rp, align 4
  store i64 0, ptr %b.sp, align 4
  br label %wake
wake:
  %k.w = phi i32 [ 0, %open ], [ %k.n, %wake ]
  %k.i = add i32 %k.w, {wait}
  %k.p = getelementptr i32, ptr %tables, i32 %k.i
  %k.wait = load i32, ptr %k.p
  %k.here = icmp eq i32 %k.wait, %b
  %k.new = select i1 %k.here, i32 {RUNNING}, i32 %k.wait
  store i32 %k.new, ptr %k.p
  %k.n = add i32 %k.w, 1
  %k.more = icmp ult i32 %k.n, {warp_count}
  br i1 %k.more, label %wake, label %bar.next
bar.next:
  %moved2 = phi i32 [ %moved, %bar ], [ 1, %wake ]
  %b.n = add i32 %b, 1
  %b.more = icmp ult i32 %b.n, {ir.CLUSTER_BARRIER + 1}
  br i1 %b.more, label %bar, label %done
done:
"""
    if not deadlock:  # the cluster's loop sees whether any CTA goes on
        return text + "  br label %released\n"
    return (
        text
        + f"""  %stuck = icmp eq i32 %moved2, 0
  br i1 %stuck, label %dead, label %released
dead:
  %sv.p = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_SERVICES}
  %sv = load ptr, ptr %sv.p
  %fail.p = getelementptr i8, ptr %sv, i64 {abi.SERVICE_FAIL}
  %fail = load ptr, ptr %fail.p
  call void %fail(ptr %sv, i32 {DEADLOCK}, ptr {deadlock})
  br label %leave
"""
    )
