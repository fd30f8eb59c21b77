"""Clusters: CTAs that reach each other's shared memory and wait for each other.

One pool thread runs all CTAs of a cluster, a round of each at a time (device/vgx_sim_schedule.c): each has frames of
its own. Their shared memory lies in one window, one CTA after the other by rank, so a shared address is an offset that
is good for all of them: a CTA's own variables begin at its rank times the stride.

A warp's arrival at the cluster's barrier is a word after the tables' others. The barrier opens when all warps that have
not ended have arrived; a warp that waits does so at barrier ir.CLUSTER_BARRIER of its CTA."""

from __future__ import annotations

from vgpusim.codegen import abi
from vgpusim.codegen.emit_layout import BARRIER_WORDS, RUNNING
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import LANES, SCALAR
from vgpusim.ptx import ir

Dimensions = tuple[int, int, int]


def size_of(cluster: Dimensions) -> int:
    return cluster[0] * cluster[1] * cluster[2]


def prologue(e: Emitter) -> None:
    """%rank: the CTA's in its cluster; %stride: from a CTA's shared memory to the next; %own: offset of this CTA's."""
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
    """The value and width of a special register of clusters; None for any other register."""
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
    least = e.icall(form, "umax", 32, stride, form.const(1, 32))  # 0 in a kernel without shared memory
    e.put(ins.operands[0], form, e.v(f"udiv {form.int(32)} {text}, {least}"), 32)


def _arrival(e: Emitter) -> str:
    at = e.v(f"add i32 %warp, {BARRIER_WORDS + 2 * e.warp_count}")
    return e.v(f"getelementptr i32, ptr %tables, i32 {at}")


def arrive(e: Emitter) -> None:
    """barrier.cluster.arrive of a whole warp. In a cluster of one CTA only the wait has an effect."""
    if e.cluster is not None:
        e.if_any(lambda: e.e(f"store i32 1, ptr {_arrival(e)}"))


def waits_at(e: Emitter) -> str:
    """The barrier that a warp waits for: the cluster's, if the warp has arrived and the barrier has not opened
    since.
    """
    arrived = e.v(f"icmp ne i32 {e.v(f'load i32, ptr {_arrival(e)}')}, 0")
    return e.v(f"select i1 {arrived}, i32 {ir.CLUSTER_BARRIER}, i32 {RUNNING}")
