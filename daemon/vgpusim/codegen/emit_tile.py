"""Sums of products by pairs (emit_pairs.py) in an order for processors with few vector registers. A kernel adds each
step's products to all of a warp's sums; those take more registers than AVX2 has, so each step would save and load some
of them. Here the steps of a block are done for a half of the lanes of two sums, then for the next. Each half loads its
own part of the factors, which lie in shared memory, where nothing changes them meanwhile; each sum is still made in the
kernel's order, so the bits are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vgpusim.codegen import emit_float, native
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.cfg import EXIT
from vgpusim.codegen.emit_access import address, plus
from vgpusim.codegen.emit_segment import load_part
from vgpusim.codegen.emitter import Emitter
from vgpusim.codegen.lane_value import LANES, Value
from vgpusim.ptx import ir

_TOGETHER = 2  # sums: halves of two take eight registers of AVX2
_HALF_BITS = 4  # of the lane number
_LEAST = 4  # steps of a sum that are worth it
_NBYTES = 4  # of an element
_SIMPLE = ("mov", "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "cvt")  # of addresses, between the loads
_PLAIN = frozenset(["shared", "shared::cta", "v2", "v4", "f32", "b32", "u32", "s32"])

Source = tuple[int, int]  # a load, by its place in the run, and which of its elements


@dataclass(slots=True)
class _Step:
    """Both instructions of a pair."""

    first: ir.Instruction
    second: ir.Instruction
    row: Source  # the pair of factors
    factor: Source  # the one that both share
    before: int | None  # the step whose result it adds to; None: the first of its sum
    after: int | None = None

    @property
    def result(self) -> tuple[ir.Operand, ir.Operand]:
        return self.first.operands[0], self.second.operands[0]

    @property
    def term(self) -> tuple[ir.Operand, ir.Operand]:
        return self.first.operands[3], self.second.operands[3]


@dataclass(slots=True)
class Tile:
    """A run of pairs, of loads of their factors, and of what makes the addresses of these."""

    instructions: list[ir.Instruction]
    needed: set[ir.Reg] = field(default_factory=set)  # registers that are read after it
    steps: list[_Step] = field(default_factory=list)
    sums: list[list[int]] = field(default_factory=list)  # the steps of each


def runs(e: Emitter, instructions: Sequence[ir.Instruction], homes: frozenset[str]) -> list[Tile]:
    """A block's instructions in order: tiles, and single instructions.

    Args:
        homes: Slots that are memory: a sum's halves are kept there.
    """
    single = [Tile([ins]) for ins in instructions]
    state = e.state
    if not e.pairs or not native.has_few_registers() or e.cluster is not None or e.is_large:
        return single
    if state.watched or state.counted:
        return single
    found: list[Tile] = []
    at = 0
    while at < len(instructions):
        end = _end(e, instructions, at)
        tile = Tile(list(instructions[at:end]), _needed(e, instructions[end:])) if end - at > _LEAST else None
        if tile is not None and _resolve(e, tile) and _fits(e, tile, homes):
            found.append(tile)
        else:
            found += single[at : max(end, at + 1)]
        at = max(end, at + 1)
    return found


def _end(e: Emitter, instructions: Sequence[ir.Instruction], begin: int) -> int:
    """Where a run that begins there ends. All of it but the pairs may be done before them, and only the pairs read what
    it loads, which gets into no register."""
    results: set[ir.Reg] = set()
    terms: set[ir.Reg] = set()
    loaded: set[ir.Reg] = set()
    for number, ins in enumerate(instructions[begin:], begin):
        if id(ins) in e.pairs:
            results.update(ir.registers_of(ins.operands[0]))
            terms.update(ir.registers_of(ins.operands[3]))
            continue
        simple = ins.opcode in _SIMPLE and ins.guard is None
        written, read = set(ir.defined(ins)), set(ir.used(ins))
        if not (simple or _is_plain_load(ins)) or not written.isdisjoint(results | terms) or read & (results | loaded):
            return number
        loaded = loaded - written if simple else loaded | written
    return len(instructions)


def _is_plain_load(ins: ir.Instruction) -> bool:
    return (
        ins.opcode == "ld"
        and ins.guard is None
        and _PLAIN.issuperset(ins.modifiers)
        and ins.has("shared", "shared::cta")
        and isinstance(ins.operands[1], ir.Address)
        and isinstance(ins.operands[1].base, ir.Reg)
        and ins.operands[1].base not in ir.defined(ins)
        and len(set(ir.defined(ins))) == len(_targets(ins))
    )


def _targets(ins: ir.Instruction) -> tuple[ir.Operand, ...]:
    target = ins.operands[0]
    return target.items if isinstance(target, ir.Vector) else (target,)


def _needed(e: Emitter, rest: Sequence[ir.Instruction]) -> set[ir.Reg]:
    """Registers that the rest of the block or a later one may read."""
    block = e.graph.blocks[e.position]
    live = 0
    for successor in block.successors:
        live |= e.live.live_in[successor] if successor != EXIT else 0
    found = set(e.live.names(live))
    for ins in (*rest, *([block.terminator] if block.terminator is not None else [])):
        found.update(ir.used(ins))
        if (first := e.pairs.get(id(ins))) is not None:
            found.update(ir.used(first))
    return found


def _resolve(e: Emitter, tile: Tile) -> bool:
    """Find where each step's operands come from; false: not from this run alone."""
    loaded: dict[ir.Operand, Source] = {}
    made: dict[ir.Operand, int] = {}
    for place, ins in enumerate(tile.instructions):
        if ins.opcode == "ld":
            loaded |= {target: (place, index) for index, target in enumerate(_targets(ins))}
            continue
        first = e.pairs.get(id(ins))
        if first is None:
            for reg in ir.defined(ins) if id(ins) not in e.pairs else ():
                loaded.pop(reg, None)
            continue
        rows = [(loaded.get(a), loaded.get(b)) for a, b in zip(first.operands[1:3], ins.operands[1:3], strict=True)]
        row, factor = rows if first.operands[2] == ins.operands[2] else rows[::-1]
        if row[0] is None or row[1] != (row[0][0], 1) or row[0][1] or factor[0] is None or factor[0] != factor[1]:
            return False
        if not loaded.keys().isdisjoint((first.operands[3], ins.operands[3])):
            return False
        before = made.get(first.operands[3])
        step = _Step(first, ins, row[0], factor[0], before)
        if made.get(ins.operands[3]) != before:
            return False
        if before is not None:
            if tile.steps[before].result != step.term or tile.steps[before].after is not None:
                return False
            tile.steps[before].after = len(tile.steps)
        made |= dict.fromkeys(step.result, len(tile.steps))
        for result in step.result:
            loaded.pop(result, None)
        tile.steps.append(step)
    for number, step in enumerate(tile.steps):
        if step.before is None:
            tile.sums.append([])
            follower: int | None = number
            while follower is not None:
                tile.sums[-1].append(follower)
                follower = tile.steps[follower].after
    return all({made[reg] for reg in tile.steps[numbers[-1]].result} == {numbers[-1]} for numbers in tile.sums)


def _fits(e: Emitter, tile: Tile, homes: frozenset[str]) -> bool:
    """Whether all sums begin and end in memory, in places of their own, and nothing else is needed later."""
    if min(map(len, tile.sums), default=0) < _LEAST:
        return False
    places = []
    for numbers in tile.sums:
        begin, end = tile.steps[numbers[0]].term, tile.steps[numbers[-1]].result
        for pair in (begin, end):
            first = pair[0]
            if not isinstance(first, ir.Reg) or e.couples.get(first) != pair or e.slot(first) not in homes:
                return False
        places.append((begin, end))
    ends = {end for _, end in places}
    if any(begin in ends and begin != end for begin, end in places) or len(ends) < len(places):
        return False
    inner = {reg for step in tile.steps if step.after is not None for reg in step.result}
    inner -= {reg for end in ends for reg in end}
    inner |= {reg for ins in tile.instructions if ins.opcode == "ld" for reg in ir.defined(ins)}
    return inner.isdisjoint(tile.needed)


def emit(e: Emitter, tile: Tile) -> None:
    """All instructions of a tile."""
    places: dict[int, Value] = {}
    for number, ins in enumerate(tile.instructions):
        if ins.opcode == "ld":
            e.instruction, e.guard = ins, None
            places[number] = address(e, ins, ins.operands[1], "shared", _NBYTES * len(_targets(ins)))
        elif id(ins) not in e.pairs:
            e.emit(ins)
            continue
        for reg in ir.defined(ins):
            e.forget(reg)
    for begin in range(0, len(tile.sums), _TOGETHER):
        for half in range(WARP >> _HALF_BITS):
            _emit_half(e, tile, tile.sums[begin : begin + _TOGETHER], places, half)


def _emit_half(e: Emitter, tile: Tile, sums: list[list[int]], places: dict[int, Value], half: int) -> None:
    lane, kind = half << _HALF_BITS, LANES.int(32)  # pairs of half a warp's lanes
    offset = 2 * _NBYTES * lane
    parts: dict[tuple[Source, bool], str] = {}
    results: dict[int, str] = {}

    def part(source: Source, row: bool) -> str:
        if (source, row) not in parts:
            number, index = source
            at = plus(e, places[number], _NBYTES * index)
            text = load_part(e, at, 32, lane, _HALF_BITS, 2 if row else 1)
            if not row:
                order = ", ".join(f"i32 {k // 2}" for k in range(WARP))
                narrow = f"<{1 << _HALF_BITS} x i32>"
                text = e.v(f"shufflevector {narrow} {text}, {narrow} poison, <{WARP} x i32> <{order}>")
            parts[source, row] = text
        return parts[source, row]

    def home(reg: ir.Operand) -> str:
        assert isinstance(reg, ir.Reg)
        return e.v(f"getelementptr i8, ptr {e.slot(reg)}, i64 {offset}")

    for number in sorted(number for numbers in sums for number in numbers):
        step = tile.steps[number]
        e.instruction = step.second
        ftz = step.second.has("ftz")
        term = results.get(-1 if step.before is None else step.before)
        term = term or e.v(f"load {kind}, ptr {home(step.term[0])}, align 64")
        swapped = step.first.operands[1] == step.second.operands[1]
        row, factor = part(step.row, True), part(step.factor, False)
        texts = (factor, row, term) if swapped else (row, factor, term)
        values = [emit_float.operand(e, LANES, text, "f32", ftz)[1] for text in texts]
        results[number] = emit_float.result_bits(e, LANES, e.fcall(LANES, "fma", "float", *values), "f32", ftz)
    for numbers in sums:
        e.e(f"store {kind} {results[numbers[-1]]}, ptr {home(tile.steps[numbers[-1]].result[0])}, align 64")
