"""cp.async, done at once: the copies are complete before any wait."""

from __future__ import annotations

from vgpusim.codegen.emit_access import address
from vgpusim.codegen.emit_mbarrier import arrive_after_copies, bulk_copy
from vgpusim.codegen.emit_memory import pointer
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.ptx import ir


@emits("cp")
def copy(e: Emitter, ins: ir.Instruction) -> None:
    """cp.async.ca|cg.shared.global [dst], [src], size[, src_size | ignore]: bytes past src_size become zero."""
    if not ins.has("async") or (ins.has("reduce") and not ins.has("bulk")):
        raise e.unsupported()
    if ins.has("bulk"):
        bulk_copy(e, ins)
        return
    if ins.has("mbarrier"):
        arrive_after_copies(e, ins)
        return
    if ins.has("commit_group", "wait_group", "wait_all"):
        return
    operands = ins.operands[:-1] if ins.has("L2::cache_hint") else ins.operands
    size = ins.operands[2]
    if not isinstance(size, ir.Imm) or size.value not in (4, 8, 16):
        raise e.malformed("copy size must be 4, 8 or 16")
    nbytes = size.value
    to = e.spread("address", e.vector(address(e, ins, ins.operands[0], "shared", nbytes, 1, "write")), 64)
    limit, sizes, read = None, "null", None
    if len(operands) > 3:
        counts = _source_nbytes(e, operands[3], nbytes)
        limit, sizes = e.spread("operand2", counts, 32), "%operand2.32"
        some = e.v(f"icmp ne <32 x i32> {counts}, zeroinitializer")  # pipelines copy 0 bytes beyond the end of data
        read = e.v(f"and i32 {e.v(f'bitcast <32 x i1> {some} to i32')}, {e.mask_bits()}")
    known_nbytes = 0 if read is not None and e.state.watched else nbytes
    origin = address(e, ins, ins.operands[1], "global", known_nbytes, 1, "read", mask=read, sizes=sizes)
    source = e.spread("operand", e.vector(origin), 64)
    kind = f"i{nbytes * 8}"

    def body(lane: str) -> None:
        target, origin = pointer(e, to(lane)), pointer(e, source(lane))
        if limit is None:
            text = e.v(f"load {kind}, ptr {origin}, align 4")
            e.e(f"store {kind} {text}, ptr {target}, align 4")
            return
        e.e(f"store {kind} 0, ptr {target}, align 4")
        count = e.v(f"zext i32 {limit(lane)} to i64")
        e.e(e.call("void", "llvm.memcpy.p0.p0.i64", ("ptr", target), ("ptr", origin), ("i64", count), ("i1", "false")))

    e.each_lane(body)


def _source_nbytes(e: Emitter, operand: ir.Operand, nbytes: int) -> str:
    if isinstance(operand, ir.Not) or (isinstance(operand, ir.Reg) and operand.nbits == 1):  # ignore-src
        (ignore,) = e.lanes([operand], 1)
        return e.v(f"select <32 x i1> {ignore}, <32 x i32> splat (i32 0), <32 x i32> splat (i32 {nbytes})")
    (count,) = e.lanes([operand], 32)
    declared = e.call("<32 x i32>", "llvm.umin.v32i32", ("<32 x i32>", count), ("<32 x i32>", f"splat (i32 {nbytes})"))
    return e.v(declared)
