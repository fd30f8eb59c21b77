"""mma: dense forms (emit_mma), those of quarters of a warp (emit_quarters) and sparse ones (emit_sparse)."""

from __future__ import annotations

from vgpusim.codegen.emit_mma import dense
from vgpusim.codegen.emit_quarters import multiply_quarters
from vgpusim.codegen.emit_sparse import multiply_sparse
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.ptx import ir


@emits("mma")
def multiply_accumulate(e: Emitter, ins: ir.Instruction) -> None:
    words = ins.modifiers
    if words[0].startswith("sp"):
        multiply_sparse(e, ins)
    elif "m8n8k4" in words and "f64" not in words:
        multiply_quarters(e, ins)
    else:
        dense(e, ins)
