"""By how much an address moves in each iteration of a loop, where it is a sum of what the loop does not change and of a
multiple of a register to which each iteration adds the same. For prefetching: a wrong answer costs time alone."""

from __future__ import annotations

from vgpusim.codegen.cfg import Graph
from vgpusim.ptx import ir

_MAX_DEPTH = 8  # instructions from the address back to the register

_Loop = tuple[int, int]  # its first and its last block


class Induction:
    def __init__(self, graph: Graph) -> None:
        self._loops = graph.loops
        self._definitions: dict[ir.Reg, list[tuple[int, ir.Instruction]]] = {}
        for index, block in enumerate(graph.blocks):
            for ins in block.all():
                for reg in ir.defined(ins):
                    self._definitions.setdefault(reg, []).append((index, ins))

    def step(self, address: ir.Reg, position: int) -> tuple[ir.Reg | ir.Imm, int] | None:
        """What each iteration of the innermost loop around block `position` adds to `address`: a register that the
        loop does not change, or a constant, and its factor. None: not known."""
        around = [loop for loop in self._loops if loop[0] <= position <= loop[1]]
        if not around:
            return None
        return self._trace(address, 1, min(around, key=lambda loop: loop[1] - loop[0]), _MAX_DEPTH)

    def _inside(self, operand: ir.Operand, loop: _Loop) -> list[ir.Instruction]:
        """The instructions of the loop that define a register."""
        if not isinstance(operand, ir.Reg):
            return []
        return [ins for index, ins in self._definitions.get(operand, ()) if loop[0] <= index <= loop[1]]

    def _trace(self, moved: ir.Operand, factor: int, loop: _Loop, depth: int) -> tuple[ir.Reg | ir.Imm, int] | None:
        inside = self._inside(moved, loop)
        if len(inside) != 1 or not depth or inside[0].guard is not None or not isinstance(moved, ir.Reg):
            return None
        opcode, source = inside[0].opcode, inside[0].operands[1:]
        if len(self._definitions[moved]) > 1:  # one before the loop, and the one that adds
            others = [operand for operand in source if operand != moved]
            if opcode != "add" or len(others) != 1 or not isinstance(others[0], ir.Reg | ir.Imm):
                return None
            return None if self._inside(others[0], loop) else (others[0], factor)
        if opcode in ("mov", "cvt"):
            return self._trace(source[0], factor, loop, depth - 1)
        if opcode == "add":
            changed = [operand for operand in source if self._inside(operand, loop)]
            return self._trace(changed[0], factor, loop, depth - 1) if len(changed) == 1 else None
        if opcode in ("shl", "mul", "mad") and isinstance(source[1], ir.Imm):
            if opcode == "mad" and self._inside(source[2], loop):
                return None
            by = source[1].value
            if opcode == "shl":
                if not 0 <= by < 64:  # an amount is unsigned: the result is 0
                    return None
                by = 1 << by
            return self._trace(source[0], factor * by, loop, depth - 1)
        return None
