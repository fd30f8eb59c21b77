"""Which registers a thread still needs at the start of each block. Sets are integers, one bit a register."""

from __future__ import annotations

from dataclasses import dataclass

from vgpud.sim import ir
from vgpud.sim.cfg import EXIT, Graph


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
    pending = set(range(len(graph.blocks)))
    while pending:
        node = max(pending)
        pending.discard(node)
        out = 0
        for succ in graph.blocks[node].successors:
            if succ != EXIT:
                out |= live_in[succ]
        new = gen[node] | (out & ~kill[node])
        if new != live_in[node]:
            live_in[node] = new
            pending.update(graph.blocks[node].predecessors)
    return Liveness(registers, index, live_in, defs)
