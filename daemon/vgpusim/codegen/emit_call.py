"""Calls of the driver's services, trap, and instructions without effect here."""

from __future__ import annotations

from vgpusim.codegen import abi, emit_absent
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_access import source
from vgpusim.codegen.emit_memory import pointer
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import LANES
from vgpusim.ptx import device_runtime, ir

_LAUNCH_FAILED = 719
_WIDTHS = {
    "vprintf": (64, 64),
    "__assertfail": (64, 64, 32, 64, 64),
    "malloc": (64,),
    "free": (64,),
    device_runtime.ASK: (32,) + (64,) * (device_runtime.ARGUMENTS - 1),
}


@emits("trap", "brkpt")
def trap(e: Emitter, ins: ir.Instruction) -> None:
    """`trap`; one that the inliner has inserted has a CUresult and a message as operands, and the pointer of a call
    whose function the kernel lacks."""
    result, what = _LAUNCH_FAILED, "trap"
    if ins.operands:
        code, name, *_ = ins.operands
        assert isinstance(code, ir.Imm)
        assert isinstance(name, ir.Name)
        result, what = code.value, name.name
    message = e.string(f"{e.program.name}: {what}{source(ins)}")

    def body() -> None:
        if len(ins.operands) > 2:
            emit_absent.ask(e, message, ins.operands[2])
            return
        first = e.v(e.call("i32", "llvm.cttz.i32", ("i32", e.mask_bits()), ("i1", "true")))
        e.e(e.service(abi.SERVICE_FAIL, "void", ("i32", str(result)), ("ptr", message), *e.thread_place(first)))

    e.if_any(body)


@emits("nanosleep", "griddepcontrol", "pmevent", "setmaxnreg")
def nothing(e: Emitter, ins: ir.Instruction) -> None:
    """Scheduling hints, and waits for an earlier launch, which has always completed."""


def _set_condition(e: Emitter, ins: ir.Instruction, handle: ir.Operand, value: ir.Operand) -> None:
    """The handle is the address of the condition's word: vgx_sim_graph_condition.c."""
    assert isinstance(handle, ir.Reg)
    place = ir.Address(handle, 0)
    e.emit(ir.Instruction("st", ("relaxed", "gpu", "global", "u32"), (place, value), ins.line))


@emits("call")
def builtin(e: Emitter, ins: ir.Instruction) -> None:
    results, target, arguments = ins.operands
    assert isinstance(results, ir.Vector)
    assert isinstance(arguments, ir.Vector)
    assert isinstance(target, ir.Name)
    if target.name == "cudaGraphSetConditional":
        _set_condition(e, ins, *arguments.items)
        return
    widths = _WIDTHS[target.name]
    inputs = [
        e.spread(f"argument{i}", e.vector(e.read(operand, nbits)), nbits)
        for i, (operand, nbits) in enumerate(zip(arguments.items, widths, strict=True))
    ]
    out = {"vprintf": 32, "malloc": 64, device_runtime.ASK: 64}.get(target.name)
    place = e.stack(f"result0.{out}", f"[{WARP} x i{out}]") if out else ""

    def body(lane: str) -> None:
        values = [read(lane) for read in inputs]
        match target.name:
            case "vprintf":
                text = e.service(abi.SERVICE_VPRINTF, "i32", *(("ptr", pointer(e, v)) for v in values))
                result = e.v(text)
            case "malloc":
                text = e.service(abi.SERVICE_MALLOC, "ptr", ("i64", values[0]))
                result = e.v(f"ptrtoint ptr {e.v(text)} to i64")
            case device_runtime.ASK:
                listed = [("i32", values[0]), *(("i64", value) for value in values[1:])]
                result = e.v(e.service(abi.SERVICE_DEVICE_RUNTIME, "i64", *listed))
            case "free":
                e.e(e.service(abi.SERVICE_FREE, "void", ("ptr", pointer(e, values[0]))))
                return
            case _:
                message, file, line, function, _char_nbytes = values
                listed = [("ptr", pointer(e, message)), ("ptr", pointer(e, file)), ("i32", line)]
                listed += [("ptr", pointer(e, function)), *e.thread_place(lane)]
                e.e(e.service(abi.SERVICE_ASSERTFAIL, "void", *listed))
                return
        e.e(f"store i{out} {result}, ptr {e.v(f'getelementptr i{out}, ptr {place}, i32 {lane}')}")

    e.each_lane(body)
    if out and results.items:
        target_reg = results.items[0]
        e.put(target_reg, LANES, e.v(f"load {LANES.int(out)}, ptr {place}, align 64"), out)
