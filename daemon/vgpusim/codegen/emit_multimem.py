"""multimem: addresses of multicast objects, which simulated devices do not have (there is no switch). Kernels that name
the instructions for machines that do are compiled; the launch that meets one fails by its name."""

from __future__ import annotations

from vgpusim.codegen import abi
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import SCALAR
from vgpusim.ptx import ir

_NOT_SUPPORTED = 801  # CUDA_ERROR_NOT_SUPPORTED


@emits("multimem")
def multimem(e: Emitter, ins: ir.Instruction) -> None:
    message = e.string(
        f"{e.program.name}, line {ins.line}: {ins.text} needs a multicast object, which simulated devices do not have"
    )
    e.if_any(
        lambda: e.e(e.service(abi.SERVICE_FAIL, "void", ("i32", str(_NOT_SUPPORTED)), ("ptr", message), *abi.NO_THREAD))
    )
    for reg in ir.defined(ins):
        e.put(reg, SCALAR, "0", reg.nbits)
