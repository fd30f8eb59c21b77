"""Instructions that move matrices of a warp: ldmatrix, stmatrix, movmatrix. Fragment layouts: PTX ISA reference."""

from __future__ import annotations

from collections.abc import Callable

from vgpusim.codegen.emit_access import address
from vgpusim.codegen.emit_memory import elements, pointer, space_of
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import LANES
from vgpusim.ptx import ir

_V = LANES.int(32)


def _matrix_count(e: Emitter, ins: ir.Instruction) -> int:
    count = {"x1": 1, "x2": 2, "x4": 4}.get(ins.one_of("x1", "x2", "x4") or "", 0)
    if not count or not ins.has("m8n8") or ins.type != "b16":
        raise e.unsupported()
    return count


TRANSPOSE = f"""define internal {_V} @transpose({_V} %x) alwaysinline #0 {{
  %h = bitcast {_V} %x to <64 x i16>
  %t = shufflevector <64 x i16> %h, <64 x i16> poison, <64 x i32> <{
    ", ".join(f"i32 {8 * (i % 8) + i // 8}" for i in range(64))
}>
  %r = bitcast <64 x i16> %t to {_V}
  ret {_V} %r
}}
"""
"""An 8x8 matrix of 16-bit elements held as <32 x i32>, row by row."""


def _transposed(e: Emitter, value: str) -> str:
    e.helper("transpose", TRANSPOSE)
    return e.v(f"call {_V} @transpose({_V} {value})")


@emits("ldmatrix")
def load_matrix(e: Emitter, ins: ir.Instruction) -> None:
    """Lanes 8j..8j+7 give the addresses of the rows of matrix j, 16 bytes each."""
    count = _matrix_count(e, ins)
    targets = elements(ins.operands[0])
    if len(targets) != count:
        raise e.malformed("wrong number of destinations")
    where = _rows(e, ins, ins.operands[1], count)
    values = []
    rows = e.stack("matrix.rows", "[32 x <4 x i32>]")

    def body() -> None:
        for row in range(8 * count):
            text = e.v(f"load <4 x i32>, ptr {pointer(e, where(str(row)))}, align 4")
            e.e(f"store <4 x i32> {text}, ptr {e.v(f'getelementptr <4 x i32>, ptr {rows}, i32 {row}')}, align 16")

    e.if_any(body)
    for matrix in range(count):
        value = e.v(f"load {_V}, ptr {e.v(f'getelementptr <4 x i32>, ptr {rows}, i32 {8 * matrix}')}, align 64")
        values.append(_transposed(e, value) if ins.has("trans") else value)
    for target, value in zip(targets, values, strict=True):
        e.put(target, LANES, value, 32)


def _rows(e: Emitter, ins: ir.Instruction, operand: ir.Operand, count: int) -> Callable[[str], str]:
    """The addresses of the matrices' rows, from the first 8 * count lanes: these all act if any lane does."""
    given = (1 << 8 * count) - 1
    mask = str(given - (1 << 32) if given >> 31 else given)
    if e.guard is not None:
        mask = e.v(f"select i1 {e.v(f'icmp ne i32 {e.mask_bits()}, 0')}, i32 {mask}, i32 0")
    return e.spread("address", e.vector(address(e, ins, operand, space_of(e, ins), 16, 1, mask=mask)), 64)


@emits("stmatrix")
def store_matrix(e: Emitter, ins: ir.Instruction) -> None:
    count = _matrix_count(e, ins)
    sources = e.lanes(elements(ins.operands[1]), 32)
    if len(sources) != count:
        raise e.malformed("wrong number of sources")
    where = _rows(e, ins, ins.operands[0], count)
    rows = e.stack("matrix.rows", "[32 x <4 x i32>]")
    for matrix, source in enumerate(sources):
        value = _transposed(e, source) if ins.has("trans") else source
        e.e(f"store {_V} {value}, ptr {e.v(f'getelementptr <4 x i32>, ptr {rows}, i32 {8 * matrix}')}, align 64")

    def body() -> None:
        for row in range(8 * count):
            text = e.v(f"load <4 x i32>, ptr {e.v(f'getelementptr <4 x i32>, ptr {rows}, i32 {row}')}, align 16")
            e.e(f"store <4 x i32> {text}, ptr {pointer(e, where(str(row)))}, align 4")

    e.if_any(body)


@emits("movmatrix")
def move_matrix(e: Emitter, ins: ir.Instruction) -> None:
    if not ins.has("m8n8") or not ins.has("trans"):
        raise e.unsupported()
    (value,) = e.lanes(ins.operands[1:], 32)
    e.put(ins.operands[0], LANES, _transposed(e, value), 32)
