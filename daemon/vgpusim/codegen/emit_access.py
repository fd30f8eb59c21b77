"""Checks of an access before it is made: a misaligned one ends the launch, as on a card (716). The processor would
serve it without a word."""

from __future__ import annotations

from vgpusim.codegen import abi
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES, Value
from vgpusim.ptx import ir

_MISALIGNED_ADDRESS = 716  # CUDA_ERROR_MISALIGNED_ADDRESS
_WRITING = ("st", "red", "stmatrix")


def description(e: Emitter, ins: ir.Instruction, nbytes: int) -> str:
    """What a report says about an access before its address."""
    kind = "atomic" if ins.opcode in ("atom", "red") else "write" if ins.opcode in _WRITING else "read"
    return f"{kind} of {nbytes} bytes by `{ins.text}`{source(ins)}"


def source(ins: ir.Instruction) -> str:
    return f" ({ins.source}; PTX line {ins.line})" if ins.source else f" (PTX line {ins.line})"


def check_alignment(e: Emitter, ins: ir.Instruction, at: Value, nbytes: int) -> None:
    """End the launch if an acting lane's address is no multiple of `nbytes`, a power of two. What holds for one lane
    holds for all where their distances are multiples."""
    if nbytes == 1:
        return
    rest = nbytes - 1
    if at.pattern.known and all(offset % nbytes == 0 for offset in at.pattern.offsets()):
        wrong = e.v(f"icmp ne i64 {e.v(f'and i64 {at.text}, {rest}')}, 0")
    else:
        low = e.v(f"and {LANES.int(64)} {e.vector(at)}, {LANES.const(rest, 64)}")
        flags = e.v(f"icmp ne {LANES.int(64)} {low}, {LANES.const(0, 64)}")
        wrong = e.v(f"icmp ne i{WARP} {e.v(f'bitcast {LANES.int(1)} {flags} to i{WARP}')}, 0")
    name = e.unique("aligned")
    e.e(f"br i1 {wrong}, label %{name}.not, label %{name}, !prof !1")
    e.label(f"{name}.not")
    helper = "misaligned"
    e.helper(helper, _helper())
    cta = e.cta_place()
    message = e.string(f"{e.program.name}: misaligned {description(e, ins, nbytes)}")
    place = e.stack("address.bad", f"[{WARP} x i64]")
    e.e(f"store {LANES.int(64)} {e.vector(at)}, ptr {place}, align 64")
    e.e(f"call void @{helper}(ptr %services, ptr {place}, i32 {e.mask_bits()}, i64 {rest}, ptr {message}, ptr {cta}, "
        "i32 %warp)")  # fmt: skip
    e.e(f"br label %{name}")
    e.label(name)


_SIGNATURE = (
    "define internal void @misaligned(ptr %services, ptr %where, i32 %mask, i64 %rest, ptr %what, ptr %cta, i32 %warp) "
    "noinline cold"
)


def _helper() -> str:
    """Report the first acting lane that is misaligned; returns when none is."""
    return f"""{_SIGNATURE} {{
  br label %loop
loop:
  %m = phi i32 [ %mask, %0 ], [ %m2, %next ]
  %done = icmp eq i32 %m, 0
  br i1 %done, label %end, label %body
body:
  %lane = call i32 @llvm.cttz.i32(i32 %m, i1 true)
  %ap = getelementptr i64, ptr %where, i32 %lane
  %a = load i64, ptr %ap
  %low = and i64 %a, %rest
  %bad = icmp ne i64 %low, 0
  br i1 %bad, label %report, label %next
report:
  %first = mul i32 %warp, {WARP}
  %thread = add i32 %first, %lane
  %fp = getelementptr i8, ptr %services, i64 {abi.SERVICE_BAD_ACCESS}
  %f = load ptr, ptr %fp
  call void %f(ptr %services, i32 {_MISALIGNED_ADDRESS}, ptr %what, i64 %a, ptr %cta, i32 %thread)
  br label %next
next:
  %m1 = sub i32 %m, 1
  %m2 = and i32 %m, %m1
  br label %loop
end:
  ret void
}}
declare i32 @llvm.cttz.i32(i32, i1)
"""
