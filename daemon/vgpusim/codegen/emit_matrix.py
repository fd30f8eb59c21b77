"""Matrices of a warp on the move: ldmatrix, stmatrix, movmatrix. Fragment layouts: PTX ISA reference."""

from __future__ import annotations

from vgpusim.codegen.emit_memory import address, elements, space_of
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import LANES
from vgpusim.ptx import ir

_V = LANES.int(32)


def _matrix_count(e: Emitter, ins: ir.Instruction) -> int:
    count = {"x1": 1, "x2": 2, "x4": 4}.get(ins.one_of("x1", "x2", "x4") or "", 0)
    if not count or not ins.has("m8n8") or ins.type != "b16":
        raise e.unsupported()
    return count


def _transposed(e: Emitter, value: str) -> str:
    """Transpose an 8x8 matrix held as <32 x i32>, row by row."""
    halves = e.v(f"bitcast {_V} {value} to <64 x i16>")
    index = ", ".join(f"i32 {8 * (i % 8) + i // 8}" for i in range(64))
    turned = e.v(f"shufflevector <64 x i16> {halves}, <64 x i16> poison, <64 x i32> <{index}>")
    return e.v(f"bitcast <64 x i16> {turned} to {_V}")


@emits("ldmatrix")
def load_matrix(e: Emitter, ins: ir.Instruction) -> None:
    """Lanes 8j..8j+7 give the addresses of the rows of matrix j, 16 bytes each."""
    count = _matrix_count(e, ins)
    targets = elements(ins.operands[0])
    if len(targets) != count:
        raise e.malformed("wrong number of destinations")
    where = e.spread("address", e.vector(address(e, ins.operands[1], space_of(e, ins))), 64)
    values = []
    rows = e.stack("matrix.rows", "[8 x <4 x i32>]")
    for matrix in range(count):
        for row in range(8):
            at = e.v(f"inttoptr i64 {where(str(8 * matrix + row))} to ptr")
            text = e.v(f"load <4 x i32>, ptr {at}, align 4")
            e.e(f"store <4 x i32> {text}, ptr {e.v(f'getelementptr <4 x i32>, ptr {rows}, i32 {row}')}, align 16")
        value = e.v(f"load {_V}, ptr {rows}, align 64")
        values.append(_transposed(e, value) if ins.has("trans") else value)
    for target, value in zip(targets, values, strict=True):
        e.put(target, LANES, value, 32)


@emits("stmatrix")
def store_matrix(e: Emitter, ins: ir.Instruction) -> None:
    count = _matrix_count(e, ins)
    sources = e.lanes(elements(ins.operands[1]), 32)
    if len(sources) != count:
        raise e.malformed("wrong number of sources")
    where = e.spread("address", e.vector(address(e, ins.operands[0], space_of(e, ins))), 64)
    rows = e.stack("matrix.rows", "[8 x <4 x i32>]")
    for matrix, source in enumerate(sources):
        value = _transposed(e, source) if ins.has("trans") else source
        e.e(f"store {_V} {value}, ptr {rows}, align 64")
        for row in range(8):
            part = e.v(f"getelementptr <4 x i32>, ptr {rows}, i32 {row}")
            text = e.v(f"load <4 x i32>, ptr {part}, align 16")
            at = e.v(f"inttoptr i64 {where(str(8 * matrix + row))} to ptr")
            e.e(f"store <4 x i32> {text}, ptr {at}, align 4")


@emits("movmatrix")
def move_matrix(e: Emitter, ins: ir.Instruction) -> None:
    if not ins.has("m8n8") or not ins.has("trans"):
        raise e.unsupported()
    (value,) = e.lanes(ins.operands[1:], 32)
    e.put(ins.operands[0], LANES, _transposed(e, value), 32)
