"""wmma.load of 16-bit elements, by pieces of the matrix's rows: where all lanes have one address and one stride, what a
fragment's register holds is a few runs of neighbours in memory, which are loaded as such and not lane by lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emitter import Emitter

_QUADS, _QUAD = WARP // 4, 4  # lane l is thread l % 4 of group l / 4 in fragment layouts

Position = tuple[int, int]  # row and column; here the place along `stride` comes first: the line


def load(
    e: Emitter, base: str, stride: str, count: int, place: Callable[[int, int, int], Position], by_row: bool
) -> list[str] | None:
    """The registers that hold `count` elements of each lane, two in each; None: the layout has another form.

    Args:
        base, stride: Of all lanes: the address, and elements from a line to the next, i64.
    """
    lines = _Lines(e, base, stride)
    registers = []
    for first in range(0, count, 2):
        low, high = (
            [(p if by_row else p[::-1]) for p in (place(lane // 4, lane % 4, i) for lane in range(WARP))]
            for i in (first, first + 1)
        )
        value = _neighbours(lines, low, high) or _pairs(lines, low, high)
        if value is None:
            return None
        registers.append(value)
    return registers


class _Lines:
    """Loads of parts of lines, each emitted once."""

    def __init__(self, e: Emitter, base: str, stride: str) -> None:
        self.e, self.base = e, base
        self.nbytes = e.v(f"shl i64 {stride}, 1")
        self.loaded: dict[tuple[str, int, int], str] = {}

    def load(self, kind: str, line: int, column: int) -> str:
        e, key = self.e, (kind, line, column)
        if key not in self.loaded:
            at = e.v(f"add i64 {self.base}, {e.v(f'mul i64 {self.nbytes}, {line}')}")
            at = e.v(f"add i64 {at}, {2 * column}")
            self.loaded[key] = e.v(f"load {kind}, ptr {e.v(f'inttoptr i64 {at} to ptr')}, align 2")
        return self.loaded[key]


def _neighbours(lines: _Lines, low: Sequence[Position], high: Sequence[Position]) -> str | None:
    """Load eight consecutive elements of a line at once, if four lanes have two of them each; else None."""
    starts = low[::_QUAD]
    wanted = [(line, column + 2 * t) for line, column in starts for t in range(_QUAD)]
    if list(low) != wanted or list(high) != [(line, column + 1) for line, column in wanted]:
        return None
    return lines.e.joined([lines.load("<4 x i32>", line, column) for line, column in starts], 32, 4)


def _pairs(lines: _Lines, low: Sequence[Position], high: Sequence[Position]) -> str | None:
    """A lane has two elements of one column, from lines that follow each other; eight lanes have eight neighbours."""
    e, (line, column) = lines.e, low[0]
    wanted = [(line + 2 * t, column + g) for g in range(_QUADS) for t in range(_QUAD)]
    if list(low) != wanted or list(high) != [(line + 1, column) for line, column in wanted]:
        return None
    parts = []
    order = ", ".join(f"i32 {k + 8 * side}" for k in range(8) for side in range(2))
    for t in range(_QUAD):
        a, b = (lines.load("<8 x i16>", line + 2 * t + side, column) for side in range(2))
        both = e.v(f"shufflevector <8 x i16> {a}, <8 x i16> {b}, <16 x i32> <{order}>")
        parts.append(e.v(f"bitcast <16 x i16> {both} to <8 x i32>"))
    whole = e.joined(parts, 32, 8)
    order = ", ".join(f"i32 {8 * t + g}" for g in range(_QUADS) for t in range(_QUAD))
    return e.v(f"shufflevector <{WARP} x i32> {whole}, <{WARP} x i32> poison, <{WARP} x i32> <{order}>")
