"""Which registers and masks a warp saves while it waits at a barrier, and where. A register has one slot for all
barriers; masks are saved where lanes may wait elsewhere. In a large kernel every register that is ever saved stays in
its slot all the time, so that nothing is copied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vgpusim.codegen import abi, liveness
from vgpusim.codegen.cfg import EXIT
from vgpusim.codegen.emitter import Emitter, slot_alignment
from vgpusim.ptx import ir
from vgpusim.ptx.module import align_up

_MASK_NBYTES = 4

Place = tuple[str, str, int]  # stack slot, type, offset in the warp's part of the frame


@dataclass(frozen=True, slots=True)
class Spills:
    """By the number of the block that a barrier ends."""

    saved: dict[int, list[Place]]  # before it
    restored: dict[int, list[Place]]  # after it
    places: list[Place]  # all of them
    homes: frozenset[str]  # slots of registers that are in their places all the time
    nbytes: int  # of one warp


def lay_out(e: Emitter, barriers: Sequence[int], masks: Sequence[tuple[str, str]]) -> Spills:
    """`barriers`: blocks that end in one; `masks`: slots and types of the values that record where lanes are."""
    dirty = liveness.unsaved(e.graph, e.live)
    constants = sum(1 << e.live.index[reg] for reg in e.state.constants if e.is_constant(reg))
    needed = {index: _needed(e, index) & ~constants for index in barriers}
    every = offset = 0
    for live in needed.values():
        every |= live
    places: dict[ir.Reg, Place] = {}
    for reg in e.live.names(every):
        if reg in places:
            continue
        kind, together = e.slot_type(reg), e.couples.get(reg, (reg,))
        lanes = abi.WARP if kind.startswith("<") else 1
        nbytes = max(1, len(together) * lanes * reg.nbits // 8)
        offset = align_up(offset, slot_alignment(lanes > 1))
        places |= dict.fromkeys(together, (e.slot(reg), kind, offset))
        offset += nbytes
    offset = align_up(offset, _MASK_NBYTES)
    mask_places = [(slot, kind, offset + _MASK_NBYTES * number) for number, (slot, kind) in enumerate(masks)]
    at_home = 0 if e.is_large else every & sum(1 << e.live.index[reg] for reg in e.couples)
    saved, restored = {}, {}
    for index, live in needed.items():
        divergent = index in e.analysis.divergent
        kept = mask_places if divergent else []
        live &= ~at_home
        changed = live if divergent else live & dirty[index]
        saved[index] = [*_distinct(places[reg] for reg in e.live.names(changed)), *kept]
        restored[index] = [*_distinct(places[reg] for reg in e.live.names(live)), *kept]
    every_place = _distinct(places.values())
    if any(index in e.analysis.divergent for index in barriers):
        offset += _MASK_NBYTES * len(masks)
        every_place += mask_places
    homes = frozenset(e.slot(reg) for reg in e.live.names(at_home))
    return Spills(saved, restored, every_place, homes, align_up(offset, 64))


def _distinct(places: Iterable[Place]) -> list[Place]:
    return list(dict.fromkeys(places))


def _needed(e: Emitter, index: int) -> int:
    """What a warp still needs after a barrier."""
    block = e.graph.blocks[index]
    target, end = block.successors[0], block.terminator
    live = e.live.live_in[target] if target != EXIT else 0
    if index in e.analysis.divergent:
        for other in e.analysis.divergent | e.analysis.joins:
            live |= e.live.live_in[other]
    assert end is not None
    for operand in end.operands[1:] if end.has("red") else ():
        for reg in ir.registers_of(operand):
            live |= 1 << e.live.index[reg]
    return live
