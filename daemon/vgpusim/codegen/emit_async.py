"""st.async and red.async: done at once, and reported to an mbarrier of the same CTA, which may be another one of the
cluster. All its CTAs run on one thread, so a plain read-modify-write is atomic."""

from __future__ import annotations

from dataclasses import replace

from vgpusim.codegen.emit_access import address
from vgpusim.codegen.emit_atomic import atomic
from vgpusim.codegen.emit_mbarrier import report
from vgpusim.codegen.emit_memory import elements, store
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.ptx import ir

_COMPLETION = "mbarrier::complete_tx::bytes"
_ASYNC = ("async", "weak", "relaxed", _COMPLETION)


@emits("st.async", "red.async")
def asynchronous(e: Emitter, ins: ir.Instruction) -> None:
    """st.async{.weak}.shared::cluster.mbarrier::complete_tx::bytes{.vec}.type [to], value, [mbarrier], and red.async
    with an operation. The forms without an mbarrier store to global memory and are not supported."""
    if not ins.has(_COMPLETION) or not ins.has("shared::cluster") or len(ins.operands) != 3:
        raise e.unsupported()
    words = tuple(word for word in ins.modifiers if word not in _ASYNC)
    barrier = e.vector(address(e, ins, ins.operands[2], "shared", 8, 8, "atomic"))
    plain = replace(ins, modifiers=words, operands=ins.operands[:2])
    (store if ins.opcode == "st" else atomic)(e, plain)
    report(e, barrier, ir.TYPE_NBITS[ins.type] // 8 * len(elements(ins.operands[1])))
