"""Counted kernels: each pool thread adds up what its warps do, for `vgpu sim profile` (device/vgx_sim_count.h).

A block's instructions are counted as the block begins, with those that a guard switches off, as a GPU issues them too;
bytes are counted where an access takes its address, for the lanes that act."""

from __future__ import annotations

from vgpusim.codegen import abi, cfg, counters
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES
from vgpusim.ptx import ir


def _add(e: Emitter, index: int, amount: str) -> None:
    """Add an i64 to a counter of the pool thread."""
    place = e.v(f"getelementptr i64, ptr %counters, i64 {index}")
    count = e.v(f"load i64, ptr {place}")
    e.e(f"store i64 {e.v(f'add i64 {count}, {amount}')}, ptr {place}")


def _lanes_in(e: Emitter, mask: str) -> str:
    """Number of lanes in a mask, i64."""
    if mask == "-1":
        return str(WARP)
    lanes = e.v(e.call("i32", "llvm.ctpop.i32", ("i32", mask)))
    return e.v(f"zext i32 {lanes} to i64")


def prologue(e: Emitter) -> None:
    e.e(f"%counters.p = getelementptr i8, ptr %thread, i64 {abi.THREAD_COUNTERS}")
    e.e("%counters = load ptr, ptr %counters.p, align 8")


def block(e: Emitter, begun: cfg.Block) -> None:
    """A warp runs a block with the lanes of the current mask."""
    instructions = sum(ins.opcode != cfg.YIELD for ins in begun.all())
    if instructions == 0:
        return
    _add(e, counters.WARP_INSTRUCTIONS, str(instructions))
    _add(e, counters.THREAD_INSTRUCTIONS, e.v(f"mul i64 {_lanes_in(e, e.current)}, {instructions}"))


def branch(e: Emitter) -> None:
    """A warp comes to a conditional branch."""
    _add(e, counters.BRANCHES, "1")


def split(e: Emitter, taken: str, other: str) -> None:
    """A conditional branch sends the lanes of two masks (i32) to two places."""
    both = [e.v(f"icmp ne i32 {mask}, 0") for mask in (taken, other)]
    _add(e, counters.DIVERGENT_BRANCHES, e.v(f"zext i1 {e.v(f'and i1 {both[0]}, {both[1]}')} to i64"))


def access(
    e: Emitter, ins: ir.Instruction, space: str, nbytes: int, kind: str, mask: str | None, sizes: str = "null"
) -> None:
    """The acting lanes access `nbytes` each, or what `sizes` holds for each (i32). Parameters do not count."""
    if space == "param":
        return
    if not kind:
        writes = ins.opcode in ("st", "stmatrix") or ins.has("store")
        kind = "atomic" if ins.opcode in ("atom", "red") else "write" if writes else "read"
    lanes = mask or e.mask_bits()
    if nbytes:
        amount = e.v(f"mul i64 {_lanes_in(e, lanes)}, {nbytes}")
    elif sizes != "null":
        acting = e.v(f"bitcast i32 {lanes} to {LANES.int(1)}")
        each = e.v(f"load {LANES.int(32)}, ptr {sizes}, align 64")
        each = e.v(f"select {LANES.int(1)} {acting}, {LANES.int(32)} {each}, {LANES.int(32)} zeroinitializer")
        total = e.v(e.call("i32", f"llvm.vector.reduce.add.v{WARP}i32", (LANES.int(32), each)))
        amount = e.v(f"zext i32 {total} to i64")
    else:
        return
    where = counters.SPACES.index(space if space in counters.SPACES else "other")
    _add(e, counters.BYTES + len(counters.KINDS) * where + counters.KINDS.index(kind), amount)
