"""Prefetches of what later warps, and later iterations of a loop, load."""

from __future__ import annotations

from vgpusim.codegen import native
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emit_segment import is_row, place_of_lane
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.induction import Induction
from vgpusim.codegen.lane_value import SCALAR, Value
from vgpusim.ptx import ir

_LINE_NBYTES = 64  # of the processor's cache
_ROWS_AHEAD = 16  # of a warp; measured with tests/bench: data fetched fewer rows ahead comes late
_LOOP_ROWS_AHEAD = 1
_LOOP_ROWS_AHEAD_AMD = 2  # into the second cache: a loop's rows, pages apart, displace each other in the first
_TILES_AHEAD = 4
_RECORDS_AHEAD = 8
_FARTHEST_NBYTES = 1 << 40  # no prefetch for a loop whose address changes by more in an iteration


def fetch_ahead(e: Emitter, at: Value, nbytes: int, write: bool = False) -> None:
    """Prefetch the rows that later warps probably load: a grid's warps go through memory in steps too wide for the
    processor's prefetcher, and one warp's work ends before the next one's begins. In a loop these are a later warp's
    row and the one of the next iteration, else a row of a CTA that this thread runs soon. On an AMD EPYC, C loops with
    the same order of accesses took up to 1.3 times longer with the latter, and sums of a loop's rows 1.6 times longer
    with the row of the next warp in the first cache.

    Args:
        at: Addresses of a load of global memory.
        nbytes: Of a lane's load.
    """
    width = e.block[0]
    if e.warp_count == 1:
        return
    if e.block[1] * e.block[2] == 1:
        row = WARP * nbytes
        if at.pattern.stride != nbytes:
            return
        if e.in_loop:
            amd = native.is_amd()
            _fetch(e, at.text, row * (_LOOP_ROWS_AHEAD_AMD if amd else _LOOP_ROWS_AHEAD), row, write, near=not amd)
            _fetch_next(e, at, row, write)
        elif not native.follows_rows():
            _fetch(e, at.text, row * _ROWS_AHEAD, row, write)
    elif not e.in_loop and width in (8, 16, 32) and is_row(at.pattern, width.bit_length() - 1, nbytes):
        for lane in range(0, WARP, width):
            _fetch(e, place_of_lane(e, at, lane), width * nbytes * _TILES_AHEAD, width * nbytes, write)


def fetch_rows_of_next(e: Emitter, at: Value, nbytes: int) -> None:
    """Prefetch what the next iteration of a loop loads, of lanes whose elements are rows of 8, 16 or 32. Not into the
    first cache: rows of a matrix are often a multiple of a page apart, and it has few places for such lines."""
    if e.in_loop and (distance := _next(e, constant=True)):
        lanes = next((n for n in (WARP, 16, 8) if is_row(at.pattern, n.bit_length() - 1, nbytes)), 0)
        for lane in range(0, WARP, lanes) if lanes else ():
            _fetch(e, e.v(f"add i64 {place_of_lane(e, at, lane)}, {distance}"), 0, lanes * nbytes, False, near=False)


def _fetch_next(e: Emitter, at: Value, row: int, write: bool) -> None:
    """Prefetch the row that the next iteration of a loop needs, where a register says how far away it is."""
    if distance := _next(e):
        _fetch(e, e.v(f"add i64 {at.text}, {distance}"), 0, row, write)


def _next(e: Emitter, constant: bool = False) -> str | None:
    """How many bytes the next iteration's address is away, if a register tells, i64. `constant`: or a number that is
    not less than a line."""
    operands = e.instruction.operands if e.instruction else ()
    place = next((operand for operand in operands if isinstance(operand, ir.Address)), None)
    if place is None or not isinstance(place.base, ir.Reg):
        return None
    if e.induction is None:
        e.induction = Induction(e.graph)
    found = e.induction.step(place.base, e.position)
    if found is None or abs(found[1]) > _FARTHEST_NBYTES:
        return None
    step, factor = found
    if isinstance(step, ir.Imm):
        distance = step.value * factor
        return str(distance) if constant and _LINE_NBYTES <= abs(distance) <= _FARTHEST_NBYTES else None
    if not e.shape(step).uniform:
        return None
    return e.v(f"mul i64 {e.resize(SCALAR, e.read(step, step.nbits).text, step.nbits, 64, signed=True)}, {factor}")


def fetch_records(e: Emitter, operand: ir.Operand, at: Value, nbytes: int) -> None:
    """As fetch_ahead, for lanes that load parts of records, which follow each other: once for all of their parts."""
    stride = at.pattern.stride
    if stride is None or not nbytes < stride <= _LINE_NBYTES or e.in_loop or e.block[1] * e.block[2] > 1:
        return
    if isinstance(operand, ir.Address) and isinstance(operand.base, ir.Reg) and operand.base not in e.fetched:
        e.fetched.add(operand.base)
        _fetch(e, at.text, WARP * stride * _RECORDS_AHEAD, WARP * stride, False)


def _fetch(e: Emitter, base: str, offset: int, nbytes: int, write: bool, near: bool = True) -> None:
    """`near`: into the first cache, else into the second."""
    for line in range(offset, offset + nbytes, _LINE_NBYTES):
        place = e.v(f"inttoptr i64 {e.v(f'add i64 {base}, {line}')} to ptr")
        how = ("i32", str(int(write))), ("i32", "3" if near else "2"), ("i32", "1")
        e.e(e.call("void", "llvm.prefetch.p0", ("ptr", place), *how))
