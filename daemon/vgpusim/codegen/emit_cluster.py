"""Clusters: CTAs that reach each other's shared memory and wait for each other.

One pool thread runs all CTAs of a cluster, a round of each at a time, as it does those of a resident grid (emit_run):
each has frames of its own. Their shared memory lies in one window, one CTA after the other by rank, so a shared address
is an offset that is good for all of them: a CTA's own variables begin at its rank times the stride.

A warp's arrival at the cluster's barrier is a word after the tables' others. The barrier opens when all warps that have
not ended have arrived; a warp that waits does so at barrier ir.CLUSTER_BARRIER of its CTA."""

from __future__ import annotations

from vgpusim.codegen import abi
from vgpusim.codegen.emit_layout import BARRIER_WORDS, DEADLOCK, ENDED, RUNNING, FrameLayout
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import LANES, SCALAR
from vgpusim.ptx import ir

Dimensions = tuple[int, int, int]


def size_of(cluster: Dimensions) -> int:
    return cluster[0] * cluster[1] * cluster[2]


# ---- in the warp's function


def prologue(e: Emitter) -> None:
    """%rank: of the CTA in its cluster; %stride: from one CTA's shared memory to the next; %own: where its begins."""
    if e.cluster is None:
        return
    rank, factor = "", 1
    for axis, count in zip("xyz", e.cluster, strict=True):
        part = e.v(f"mul i32 {e.v(f'urem i32 %cta.{axis}, {count}')}, {factor}")
        rank, factor = (e.v(f"add i32 {rank}, {part}") if rank else part), factor * count
    e.e(f"%rank = add i32 {rank}, 0")
    static, dynamic = (
        e.v(f"load i32, ptr {e.v(f'getelementptr i8, ptr %launch, i64 {offset}')}, align 4, !invariant.load !0")
        for offset in (abi.LAUNCH_SHARED_STATIC, abi.LAUNCH_SHARED_DYNAMIC)
    )
    rounded = e.v(f"add i32 {e.v(f'add i32 {static}, {dynamic}')}, {abi.SHARED_ALIGN - 1}")
    e.e(f"%stride = and i32 {rounded}, -{abi.SHARED_ALIGN}")
    e.e("%own = mul i32 %rank, %stride")


def special(e: Emitter, head: str, axis: str) -> tuple[str, int] | None:
    """A special register of a cluster; None of another."""
    dimensions = e.cluster or (1, 1, 1)
    count = dimensions["xyz".index(axis)] if axis else 1
    match head:
        case "%clusterid":
            return e.v(f"udiv i32 %cta.{axis}, {count}"), 32
        case "%nclusterid":
            place = e.v(f"getelementptr i8, ptr %launch, i64 {abi.LAUNCH_GRID + 4 * 'xyz'.index(axis)}")
            grid = e.v(f"load i32, ptr {place}, align 4, !invariant.load !0")
            return e.v(f"udiv i32 {grid}, {count}"), 32
        case "%cluster_ctaid":
            return e.v(f"urem i32 %cta.{axis}, {count}"), 32
        case "%cluster_nctaid":
            return str(count), 32
        case "%cluster_ctarank":
            return ("%rank" if e.cluster else "0"), 32
        case "%cluster_nctarank":
            return str(size_of(dimensions)), 32
        case "%is_explicit_cluster":
            return ("1" if e.cluster else "0"), 1
    return None


@emits("mapa")
def map_address(e: Emitter, ins: ir.Instruction) -> None:
    """mapa{.shared::cluster}.u32|u64 d, a, rank: the address in another CTA of what `a` is in this one."""
    nbits = ir.TYPE_NBITS[ins.type]
    form, (text, rank) = e.sources(ins, ins.operands[1:3], nbits, 32)
    if e.cluster is not None:
        own, stride = (e.splat(name, "i32") if form is LANES else name for name in ("%rank", "%stride"))
        kind = form.int(32)
        distance = e.v(f"mul {kind} {e.v(f'sub {kind} {rank}, {own}')}, {stride}")
        text = e.v(f"add {form.int(nbits)} {text}, {e.resize(form, distance, 32, nbits, signed=True)}")
    e.put(ins.operands[0], form, text, nbits)


@emits("getctarank")
def rank_in_cluster(e: Emitter, ins: ir.Instruction) -> None:
    """getctarank{.shared::cluster}.u32|u64 d, a: which CTA's shared memory holds an address."""
    if e.cluster is None:
        e.put(ins.operands[0], SCALAR, "0", 32)
        return
    shared = any(word.startswith("shared") for word in ins.modifiers)
    form, (text,) = e.sources(ins, ins.operands[1:2], ir.TYPE_NBITS[ins.type])
    window, stride = (e.splat(n, k) if form is LANES else n for n, k in (("%shared", "i64"), ("%stride", "i32")))
    if not shared:
        text = e.v(f"sub {form.int(64)} {e.resize(form, text, ir.TYPE_NBITS[ins.type], 64)}, {window}")
        text = e.resize(form, text, 64, 32)
    else:
        text = e.resize(form, text, ir.TYPE_NBITS[ins.type], 32)
    least = e.icall(form, "umax", 32, stride, form.const(1, 32))  # of a kernel without shared memory
    e.put(ins.operands[0], form, e.v(f"udiv {form.int(32)} {text}, {least}"), 32)


def _arrival(e: Emitter) -> str:
    at = e.v(f"add i32 %warp, {BARRIER_WORDS + 2 * e.warp_count}")
    return e.v(f"getelementptr i32, ptr %tables, i32 {at}")


def arrive(e: Emitter) -> None:
    """barrier.cluster.arrive: the warp, whole. Of a cluster of one CTA only the wait counts."""
    if e.cluster is not None:
        e.if_any(lambda: e.e(f"store i32 1, ptr {_arrival(e)}"))


def waits_at(e: Emitter) -> str:
    """What a warp's wait is for: the barrier, if it has arrived and the barrier has not opened since."""
    arrived = e.v(f"icmp ne i32 {e.v(f'load i32, ptr {_arrival(e)}')}, 0")
    return e.v(f"select i1 {arrived}, i32 {ir.CLUSTER_BARRIER}, i32 {RUNNING}")


# ---- in the kernel's entry


def coordinates(cluster: Dimensions) -> str:
    """Text: the CTA %c, a rank, of cluster %q."""
    x, y, z = cluster
    return f"""  %kx = udiv i64 %gx, {x}
  %ky = udiv i64 %gy, {y}
  %qx = urem i64 %q, %kx
  %q.row = udiv i64 %q, %kx
  %qy = urem i64 %q.row, %ky
  %qz = udiv i64 %q.row, %ky
  %rx = urem i64 %c, {x}
  %r.row = udiv i64 %c, {x}
  %ry = urem i64 %r.row, {y}
  %rz = udiv i64 %r.row, {y}
  %qx.0 = mul i64 %qx, {x}
  %qy.0 = mul i64 %qy, {y}
  %qz.0 = mul i64 %qz, {z}
  %cx.l = add i64 %qx.0, %rx
  %cy.l = add i64 %qy.0, %ry
  %cz.l = add i64 %qz.0, %rz
  %cx = trunc i64 %cx.l to i32
  %cy = trunc i64 %cy.l to i32
  %cz = trunc i64 %cz.l to i32
"""


def loop(cluster: Dimensions, warp_count: int, frame: FrameLayout, start: str, one_round: str, deadlock: str) -> str:
    """Take clusters until none is left; of each, rounds over its CTAs until every warp has ended. `start` clears a
    CTA's tables, %i.tables, from label %set to %set.next; `one_round` runs one from %warps to %released."""
    size = size_of(cluster)
    arrivals = BARRIER_WORDS + 2 * warp_count
    return f"""  %next.p = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_NEXT_CTA}
  %counter = load ptr, ptr %next.p
  %chunk.p = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_CTA_CHUNK}
  %chunk.c = load i64, ptr %chunk.p
  %chunk.k = udiv i64 %chunk.c, {size}
  %chunk = call i64 @llvm.umax.i64(i64 %chunk.k, i64 1)
  %clusters = udiv i64 %count, {size}
  br label %claim
claim:
  %first = atomicrmw add ptr %counter, i64 %chunk monotonic
  %over.all = icmp uge i64 %first, %clusters
  br i1 %over.all, label %leave, label %take
take:
  %left = sub i64 %clusters, %first
  %n = call i64 @llvm.umin.i64(i64 %left, i64 %chunk)
  %last = add i64 %first, %n
  br label %check
check:
  %q = phi i64 [ %first, %take ], [ %q.n, %cluster.end ]
  br label %set
set:
  %i = phi i64 [ 0, %check ], [ %i.n, %set.next ]
  %i.o = mul i64 %i, {frame.nbytes}
  %i.tables = getelementptr i8, ptr %frames, i64 %i.o
  %i.thread = getelementptr i8, ptr %i.tables, i64 {frame.thread}
  call void @llvm.memcpy.p0.p0.i64(ptr %i.thread, ptr %thread, i64 {abi.THREAD_NBYTES}, i1 false)
  %i.lp = getelementptr i8, ptr %i.thread, i64 {abi.THREAD_NBYTES}
  store i32 {warp_count}, ptr %i.lp
{start}set.next:
  %i.n = add i64 %i, 1
  %i.more = icmp ult i64 %i.n, {size}
  br i1 %i.more, label %set, label %pass
pass:
  %stopped = load volatile i32, ptr %stop
  %go = icmp eq i32 %stopped, 0
  br i1 %go, label %cta, label %leave
cta:
  %c = phi i64 [ 0, %pass ], [ %c.n, %next ]
  %some = phi i1 [ false, %pass ], [ %some.n, %next ]
  %went = phi i32 [ 0, %pass ], [ %went.n, %next ]
{coordinates(cluster)}  %c.o = mul i64 %c, {frame.nbytes}
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
  %went.l = phi i32 [ 1, %release ], [ %moved2, %done ]
  store i32 %live1, ptr %live.p
  %lives = icmp ne i32 %live1, 0
  %some.l = or i1 %some, %lives
  %went.o = or i32 %went, %went.l
  br label %next
next:
  %some.n = phi i1 [ %some, %cta ], [ %some.l, %released ]
  %went.n = phi i32 [ %went, %cta ], [ %went.o, %released ]
  %c.n = add i64 %c, 1
  %c.more = icmp ult i64 %c.n, {size}
  br i1 %c.more, label %cta, label %around
around:
  br i1 %some.n, label %meet, label %cluster.end
meet:
  %a.c = phi i64 [ 0, %around ], [ %a.c2, %meet.next ]
  %a.w = phi i64 [ 0, %around ], [ %a.w2, %meet.next ]
  %a.o = mul i64 %a.c, {frame.nbytes}
  %a.t = getelementptr i8, ptr %frames, i64 %a.o
  %a.wi = add i64 %a.w, {BARRIER_WORDS}
  %a.wp = getelementptr i32, ptr %a.t, i64 %a.wi
  %a.wait = load i32, ptr %a.wp
  %a.ai = add i64 %a.w, {arrivals}
  %a.ap = getelementptr i32, ptr %a.t, i64 %a.ai
  %a.here = load i32, ptr %a.ap
  %a.gone = icmp eq i32 %a.wait, {ENDED}
  %a.came = icmp ne i32 %a.here, 0
  %a.fine = or i1 %a.gone, %a.came
  br i1 %a.fine, label %meet.next, label %apart
meet.next:
  %a.wn = add i64 %a.w, 1
  %a.wrap = icmp eq i64 %a.wn, {warp_count}
  %a.w2 = select i1 %a.wrap, i64 0, i64 %a.wn
  %a.step = zext i1 %a.wrap to i64
  %a.c2 = add i64 %a.c, %a.step
  %a.more = icmp ult i64 %a.c2, {size}
  br i1 %a.more, label %meet, label %together
together:
  %o.c = phi i64 [ 0, %meet.next ], [ %o.c2, %together ]
  %o.w = phi i64 [ 0, %meet.next ], [ %o.w2, %together ]
  %o.o = mul i64 %o.c, {frame.nbytes}
  %o.t = getelementptr i8, ptr %frames, i64 %o.o
  %o.wi = add i64 %o.w, {BARRIER_WORDS}
  %o.wp = getelementptr i32, ptr %o.t, i64 %o.wi
  %o.wait = load i32, ptr %o.wp
  %o.waits = icmp eq i32 %o.wait, {ir.CLUSTER_BARRIER}
  %o.new = select i1 %o.waits, i32 {RUNNING}, i32 %o.wait
  store i32 %o.new, ptr %o.wp
  %o.ai = add i64 %o.w, {arrivals}
  %o.ap = getelementptr i32, ptr %o.t, i64 %o.ai
  store i32 0, ptr %o.ap
  %o.wn = add i64 %o.w, 1
  %o.wrap = icmp eq i64 %o.wn, {warp_count}
  %o.w2 = select i1 %o.wrap, i64 0, i64 %o.wn
  %o.step = zext i1 %o.wrap to i64
  %o.c2 = add i64 %o.c, %o.step
  %o.more = icmp ult i64 %o.c2, {size}
  br i1 %o.more, label %together, label %pass
apart:
  %stuck = icmp eq i32 %went.n, 0
  br i1 %stuck, label %dead, label %pass
dead:
  %sv.p = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_SERVICES}
  %sv = load ptr, ptr %sv.p
  %fail.p = getelementptr i8, ptr %sv, i64 {abi.SERVICE_FAIL}
  %fail = load ptr, ptr %fail.p
  call void %fail(ptr %sv, i32 {DEADLOCK}, ptr {deadlock})
  br label %leave
cluster.end:
  %q.n = add i64 %q, 1
  %q.same = icmp ult i64 %q.n, %last
  br i1 %q.same, label %check, label %claim
"""
