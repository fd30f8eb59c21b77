"""Which registers a thread still needs at the start of each block, and which have changed since they were last saved.
Sets are integers, one bit a register."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from vgpusim.codegen.cfg import EXIT, YIELD, Block, Graph
from vgpusim.ptx import ir


@dataclass(slots=True)
class Liveness:
    registers: list[ir.Reg]  # by bit number
    index: dict[ir.Reg, int]
    live_in: list[int]
    defs: list[int]  # registers each block writes

    def names(self, bits: int) -> list[ir.Reg]:
        found = []
        while bits:
            low = bits & -bits
            found.append(self.registers[low.bit_length() - 1])
            bits ^= low
        return found


class Worklist:
    """Blocks that remain to be looked at, each once, the one with the least number first (or the greatest)."""

    def __init__(self, blocks: Iterable[int], last_first: bool = False) -> None:
        self._sign = -1 if last_first else 1
        self._heap: list[int] = []
        self._members: set[int] = set()
        self.add(blocks)

    def add(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if block not in self._members:
                self._members.add(block)
                heapq.heappush(self._heap, self._sign * block)

    def __iter__(self) -> Iterator[int]:
        """Remove and return one after another, also those that are added meanwhile."""
        while self._heap:
            block = self._sign * heapq.heappop(self._heap)
            self._members.remove(block)
            yield block


def compute(graph: Graph) -> Liveness:
    registers: list[ir.Reg] = []
    index: dict[ir.Reg, int] = {}
    gen, kill, defs = [], [], []
    for block in graph.blocks:
        needed = killed = written = 0
        for ins in block.all():
            for reg in (*ir.used(ins), *ir.defined(ins)):
                if reg not in index:
                    index[reg] = len(registers)
                    registers.append(reg)
            for reg in ir.used(ins):
                if not killed >> index[reg] & 1:
                    needed |= 1 << index[reg]
            for reg in ir.defined(ins):
                written |= 1 << index[reg]
                if ins.guard is None:
                    killed |= 1 << index[reg]
        gen.append(needed)
        kill.append(killed)
        defs.append(written)
    live_in = [0] * len(graph.blocks)
    pending = Worklist(range(len(graph.blocks)), last_first=True)
    for node in pending:
        out = 0
        for succ in graph.blocks[node].successors:
            if succ != EXIT:
                out |= live_in[succ]
        new = gen[node] | (out & ~kill[node])
        if new != live_in[node]:
            live_in[node] = new
            pending.add(graph.blocks[node].predecessors)
    return Liveness(registers, index, live_in, defs)


def unsaved(graph: Graph, live: Liveness) -> list[int]:
    """For each block, the registers that may have been written since the warp last saved all it needs: what is
    computed once before a loop need not be saved at every barrier in it."""
    dirty_out = [0] * len(graph.blocks)
    dirty_in = [0] * len(graph.blocks)
    pending = Worklist(range(len(graph.blocks)))
    for node in pending:
        block = graph.blocks[node]
        dirty_in[node] = 0
        for pred in block.predecessors:
            dirty_in[node] |= dirty_out[pred]
        new = _written_after_saving(block, live) if _always_saves(block) else dirty_in[node] | live.defs[node]
        if new != dirty_out[node]:
            dirty_out[node] = new
            pending.add(succ for succ in block.successors if succ != EXIT)
    return [dirty | defs for dirty, defs in zip(dirty_in, live.defs, strict=True)]


def _always_saves(block: Block) -> bool:
    return block.is_barrier and block.terminator is not None and block.terminator.opcode != YIELD


def _written_after_saving(block: Block, live: Liveness) -> int:
    """The result of a barrier's reduction."""
    assert block.terminator is not None
    return sum(1 << live.index[reg] for reg in set(ir.defined(block.terminator)))
