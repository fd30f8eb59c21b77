"""Special registers, and other queries of a kernel about its position in the grid."""

from __future__ import annotations

from vgpusim.codegen import abi, emit_cluster
from vgpusim.codegen.emitter import SPECIAL_REGISTERS, Emitter, emits
from vgpusim.codegen.lane_value import SCALAR
from vgpusim.ptx import ir
from vgpusim.ptx.module import RESERVED_SHARED_NBYTES

_SM_COUNT_UNKNOWN = 1 << 16  # the ABI does not have it; larger than any %smid


def emit_special(e: Emitter, name: str) -> tuple[str, int]:
    """The value of a special register and its width; a vector exactly when uniformity.special_shape says varying."""
    head, _, axis = name.partition(".")
    index = "xyzw".index(axis) if axis else 0
    if axis == "w":
        return "0", 32
    of_cluster = emit_cluster.special(e, head, axis)
    if of_cluster is not None:
        return of_cluster
    match head:
        case "%tid":
            return f"%tid.{axis}", 32
        case "%ntid":
            return str(e.block[index]), 32
        case "%ctaid":
            return f"%cta.{axis}", 32
        case "%nctaid":
            return _launch(e, abi.LAUNCH_GRID + 4 * index), 32
        case "%laneid":
            return "0", 32  # lane 0's; other lanes' values follow from the shape
        case "WARP_SZ":
            return str(abi.WARP), 32
        case "%warpid":
            return "%warp", 32
        case "%nwarpid":
            return str(e.warp_count), 32
        case "%smid":
            place = e.v(f"getelementptr i8, ptr %thread, i64 {abi.THREAD_SM}")
            return e.v(f"load i32, ptr {place}, align 4"), 32
        case "%nsmid":
            return str(_SM_COUNT_UNKNOWN), 32
        case "%gridid":
            return _launch(e, abi.LAUNCH_ID, 64), 64
        case "%lanemask_eq" | "%lanemask_le" | "%lanemask_lt" | "%lanemask_ge" | "%lanemask_gt":
            return _lane_mask(head[-2:]), 32
        case "%clock" | "%clock64" | "%clock_hi":
            cycles = e.v(e.call("i64", "llvm.readcyclecounter"))
            return (_high(e, cycles), 32) if head == "%clock_hi" else (cycles, 64)
        case "%globaltimer" | "%globaltimer_lo" | "%globaltimer_hi":
            now = _nanoseconds(e)
            return (_high(e, now), 32) if head == "%globaltimer_hi" else (now, 64)
        case "%dynamic_smem_size":
            return _launch(e, abi.LAUNCH_SHARED_DYNAMIC), 32
        case "%total_smem_size" | "%aggr_smem_size":
            static, dynamic = _launch(e, abi.LAUNCH_SHARED_STATIC), _launch(e, abi.LAUNCH_SHARED_DYNAMIC)
            both = e.v(f"add i32 {static}, {dynamic}")
            if head == "%aggr_smem_size":
                return both, 32
            return e.v(f"sub i32 {both}, {e.program.reserved_shared_nbytes}"), 32
        case "%reserved_smem_offset_cap":
            return str(RESERVED_SHARED_NBYTES), 32
        case "%reserved_smem_offset_end":
            return e.own_shared(RESERVED_SHARED_NBYTES), 32
        case "%reserved_smem_offset_1":
            return e.own_shared(RESERVED_SHARED_NBYTES // 2), 32
        case "%reserved_smem_offset_begin" | "%reserved_smem_offset_0":
            return e.own_shared(0), 32
    if head in ("%envreg1", "%envreg2"):  # cooperative_groups' name for the grid's workspace: its high and low half
        return _launch(e, abi.LAUNCH_WORKSPACE + (4 if head == "%envreg1" else 0)), 32
    if head.startswith("%envreg"):
        return "0", 32
    raise e.unsupported(f"special register {name}")


SPECIAL_REGISTERS.append(emit_special)


@emits("createpolicy")
def cache_policy(e: Emitter, ins: ir.Instruction) -> None:
    """Cache policies have no effect: any value will do."""
    e.put(ins.operands[0], SCALAR, "0", 64)


def _launch(e: Emitter, offset: int, nbits: int = 32) -> str:
    place = e.v(f"getelementptr i8, ptr %launch, i64 {offset}")
    return e.v(f"load i{nbits}, ptr {place}, align 4, !invariant.load !0")


def _high(e: Emitter, text: str) -> str:
    return e.v(f"trunc i64 {e.v(f'lshr i64 {text}, 32')} to i32")


def _nanoseconds(e: Emitter) -> str:
    place = e.stack("timespec", "[2 x i64]")
    e.e(e.call("i32", "clock_gettime", ("i32", "0"), ("ptr", place)))
    seconds = e.v(f"load volatile i64, ptr {place}")
    rest = e.v(f"load volatile i64, ptr {e.v(f'getelementptr i64, ptr {place}, i32 1')}")
    return e.v(f"add i64 {e.v(f'mul i64 {seconds}, 1000000000')}, {rest}")


def _lane_mask(which: str) -> str:
    values = []
    for lane in range(abi.WARP):
        bit = 1 << lane
        below, full = bit - 1, (1 << abi.WARP) - 1
        value = {"eq": bit, "lt": below, "le": below | bit, "ge": full & ~below, "gt": full & ~(below | bit)}[which]
        values.append(f"i32 {value - (1 << 32) if value >> 31 else value}")
    return "<" + ", ".join(values) + ">"
