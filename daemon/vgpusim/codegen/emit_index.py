"""Loads of global memory by an index of each lane that has no pattern when the kernel is compiled: `a[min(i, n - 1)]`.

In most warps such indices are consecutive all the same. So the code looks at run time, at the 32-bit indices and not at
the addresses made of them: where they are consecutive, a few scalars give the addresses and are checked, and nothing
else is computed. Addresses of all lanes are made where they are not."""

from __future__ import annotations

from dataclasses import replace

from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_access import check
from vgpusim.codegen.emit_gather import gather
from vgpusim.codegen.emit_prefetch import fetch_ahead, fetch_rows_of_next
from vgpusim.codegen.emit_segment import is_row, load_segments
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_pattern import LANE_BITS, VARYING, Pattern
from vgpusim.codegen.lane_value import LANES, Indexed, Value
from vgpusim.ptx import ir

_WIDE = ("s64", "u64", "b64")


def derive(e: Emitter, ins: ir.Instruction) -> tuple[ir.Reg, Indexed] | None:
    """What an instruction, not yet emitted, makes of lanes' indices, if all lanes get it."""
    if not e.state.confined or e.state.watched or ins.guard is not None or ins.has("sat", "hi") or not ins.operands:
        return None
    target = ins.operands[0]
    if not isinstance(target, ir.Reg) or target.nbits != 64 or e.shape(target).pattern.known:
        return None
    found = _made(e, ins)
    return None if found is None else (target, found)


def _made(e: Emitter, ins: ir.Instruction) -> Indexed | None:
    sources = ins.operands[1:]
    match ins.opcode:
        case "mul" | "mad" if ins.has("wide") and ins.type in ("s32", "u32"):
            signed = ins.type == "s32"
            index, factor = _index(e, sources[0], signed), e.analysis.constant(sources[1])
            base = "0" if ins.opcode == "mul" else _shared(e, sources[2])
            if index and base and factor is not None and factor > 0:
                return Indexed(*index, signed, factor, base)
        case "cvt" if len(ins.modifiers) == 2 and ins.modifiers[0] in _WIDE and ins.modifiers[1] in ("s32", "u32"):
            signed = ins.modifiers[1] == "s32"
            index = _index(e, sources[0], signed)
            return Indexed(*index, signed, 1, "0") if index else None
        case "shl" if ins.type == "b64" and (old := index_of(e, sources[0])):
            amount = e.analysis.constant(sources[1])
            if amount is not None and 0 <= amount < 8:
                return replace(old, factor=old.factor << amount, base=e.v(f"shl i64 {old.base}, {amount}"))
        case "add" if ins.type in _WIDE and not ins.has("cc"):
            for one, other in (sources, sources[::-1]):
                old, base = index_of(e, one), _shared(e, other)
                if old and base:
                    return replace(old, base=e.v(f"add i64 {old.base}, {base}"))
        case "cvta" if ins.has("to") and ins.has("global"):
            return index_of(e, sources[0])
    return None


def index_of(e: Emitter, operand: ir.Operand) -> Indexed | None:
    return e.indices.get(operand) if isinstance(operand, ir.Reg) else None


def _index(e: Emitter, operand: ir.Operand, signed: bool) -> tuple[str, Pattern] | None:
    """All lanes' indices, and their pattern. An unsigned index may have a pattern that its product lacks, where the sum
    of a thread's number and a register may wrap."""
    if isinstance(operand, ir.Reg) and operand.nbits == 32 and not (signed and e.shape(operand).pattern.known):
        return e.vector(e.read(operand, 32)), e.shape(operand).pattern
    return None


def _shared(e: Emitter, operand: ir.Operand) -> str | None:
    """An operand of 64 bits that all lanes share."""
    if isinstance(operand, (ir.Reg, ir.Imm)):
        value = e.read(operand, 64) if isinstance(operand, ir.Imm) or e.shape(operand).uniform else None
        return value.text if value is not None else None
    return None


def load_indexed(e: Emitter, ins: ir.Instruction, source: Indexed, offset: int, nbits: int) -> str:
    """A load of all lanes: rows of the block's row length, if the indices are consecutive; else a gather. Of a matrix's
    rows, `a[(y + threadIdx.y) * n + x + threadIdx.x]`, it is known that they are, unless they wrap."""
    nbytes, kind, index, lanes = nbits // 8, LANES.int(nbits), source.index, _row_length(e)
    wide, flags = f"<{WARP} x i64>", "false"
    if not is_row(source.pattern, lanes.bit_length() - 1, 1):
        starts = ", ".join(f"i32 {lane & -lanes}" for lane in range(WARP))
        start = e.v(f"shufflevector <{WARP} x i32> {index}, <{WARP} x i32> poison, <{WARP} x i32> <{starts}>")
        steps = e.constants(32, [lane % lanes for lane in range(WARP)])
        differs = e.v(f"icmp ne <{WARP} x i32> {e.v(f'sub <{WARP} x i32> {index}, {start}')}, {steps}")
        flags = e.v(f"icmp ne i32 {e.v(f'bitcast <{WARP} x i1> {differs} to i32')}, 0")
    places, widened = f"{wide} poison", "sext" if source.signed else "zext"
    for lane in range(0, WARP, lanes):
        first = e.v(f"extractelement <{WARP} x i32> {index}, i32 {lane}")
        last = f"sgt i32 {first}, {(1 << 31) - 1 - WARP}" if source.signed else f"ugt i32 {first}, {-1 - WARP}"
        wraps = e.v(f"icmp {last}")  # consecutive modulo 2**32 alone
        flags = e.v(f"or i1 {flags}, {wraps}")
        at = e.v(f"mul i64 {e.v(f'{widened} i32 {first} to i64')}, {source.factor}")
        at = e.v(f"add i64 {e.v(f'add i64 {at}, {source.base}')}, {offset}")
        places = f"{wide} {e.v(f'insertelement {places}, i64 {at}, i32 {lane}')}"
    name = e.unique("index")
    e.e(f"br i1 {flags}, label %{name}.each, label %{name}.row, !prof !1")
    e.label(f"{name}.row")
    steps_of = tuple(nbytes << k if 1 << k < lanes else None for k in range(LANE_BITS))
    row = Value(places.removeprefix(f"{wide} ") if None in steps_of else at, 64, Pattern(steps_of))
    check(e, ins, row, nbytes, nbytes)
    fetch_ahead(e, row, nbytes)
    fetch_rows_of_next(e, row, nbytes)
    loaded = load_segments(e, row, nbits, None)
    e.e(f"br label %{name}.row.end")
    e.label(f"{name}.row.end")
    e.e(f"br label %{name}.end")
    e.label(f"{name}.each")
    scaled = e.v(f"mul {wide} {e.v(f'{widened} <{WARP} x i32> {index} to {wide}')}, {LANES.const(source.factor, 64)}")
    near = e.v(f"add i64 {source.base}, {offset}")
    where = e.v(f"add {wide} {scaled}, {e.splat(near, 'i64')}")
    check(e, ins, Value(where, 64, VARYING), nbytes, nbytes)
    gathered = gather(e, where, nbits, "splat (i1 true)")
    e.e(f"br label %{name}.each.end")
    e.label(f"{name}.each.end")
    e.e(f"br label %{name}.end")
    e.label(f"{name}.end")
    return e.v(f"phi {kind} [ {loaded}, %{name}.row.end ], [ {gathered}, %{name}.each.end ]")


def _row_length(e: Emitter) -> int:
    """Lanes of a warp that are in one row of the block."""
    return e.block[0] if e.block[0] in (8, 16) else WARP
