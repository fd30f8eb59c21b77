"""Which registers and masks a warp saves while it waits at a barrier, and where. A register has one slot for all
barriers; masks are saved where lanes may wait elsewhere. In a large kernel every register that is ever saved stays in
its slot all the time, so that nothing is copied; in others those that are read seldom between barriers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vgpusim.codegen import abi, liveness
from vgpusim.codegen.cfg import EXIT
from vgpusim.codegen.emitter import Emitter, slot_alignment
from vgpusim.ptx import ir
from vgpusim.ptx.module import align_up

_MASK_NBYTES = 4
_MAX_READS = 2  # in loops, of a register that is in its place all the time

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
    at_home = 0 if e.is_large else _at_home(e, needed)
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


def _at_home(e: Emitter, needed: dict[int, int]) -> int:
    """Vectors that live over a barrier of a loop and that no other loop in it uses, if they are read seldom. Copies of
    them at each barrier would take the processor's registers from what is computed meanwhile."""
    waits = {loop: any(loop[0] <= index <= loop[1] for index in needed) for loop in e.graph.loops}
    found = used = 0
    for (header, last), some in waits.items():
        for index in needed if some else ():
            if header <= index <= last and index not in e.analysis.divergent:
                found |= needed[index]
    reads: Counter[ir.Reg] = Counter()
    for number, block in enumerate(e.graph.blocks):
        around = [some for (header, last), some in waits.items() if header <= number <= last]
        for ins in block.all() if around else ():
            reads.update(set(ir.used(ins)))
            if not all(around):
                used |= sum(1 << e.live.index[reg] for reg in {*ir.used(ins), *ir.defined(ins)})
    seldom = (r for r in e.live.names(found & ~used) if reads[r] <= _MAX_READS and e.slot_type(r).startswith("<"))
    return sum(1 << e.live.index[reg] for reg in seldom if reg.nbits > 1)  # no processor has vectors of bits in memory


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
