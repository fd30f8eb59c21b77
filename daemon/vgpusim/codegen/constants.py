"""Registers that hold one constant in the whole kernel: an immediate value, or the place of a shared variable.

Reads of them use the constant, so LLVM knows, for example, that an address made from one is aligned, and no barrier
saves them. nvcc puts the place of a shared array into a register before the first barrier and uses it after others."""

from __future__ import annotations

from vgpusim.codegen.cfg import Graph
from vgpusim.codegen.program import Program
from vgpusim.ptx import ir


def find(program: Program, graph: Graph) -> dict[ir.Reg, ir.Operand]:
    """The source of each register that a `mov` of a constant without a guard defines, and nothing else does."""
    found: dict[ir.Reg, ir.Operand] = {}
    defined: set[ir.Reg] = set()
    for block in graph.blocks:
        for ins in block.all():
            for reg in ir.defined(ins):
                if reg not in defined and _is_constant(program, ins):
                    found[reg] = ins.operands[1]
                else:
                    found.pop(reg, None)
                defined.add(reg)
    return found


def _is_constant(program: Program, ins: ir.Instruction) -> bool:
    if ins.opcode != "mov" or ins.guard is not None or not isinstance(ins.operands[0], ir.Reg):
        return False
    source = ins.operands[1]
    if isinstance(source, ir.Symbol):
        return source.name in program.shared
    return ir.TYPE_NBITS[ins.type] == ins.operands[0].nbits > 1 and isinstance(source, ir.Imm | ir.FloatImm)
