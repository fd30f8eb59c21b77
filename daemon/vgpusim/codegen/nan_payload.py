"""Registers whose f32 NaNs need not be canonical.

A GPU's f32 arithmetic makes one NaN, 0x7fffffff; the host's passes payloads on. To compare and replace after every
operation would double the cost of inner loops, and the payload of a NaN matters only where something looks at bits: an
operation on floats makes a NaN of any NaN. So a register that nothing but such operations (and moves between such
registers) defines is left as the host computes it, and an instruction that reads its bits makes them canonical."""

from __future__ import annotations

from vgpusim.codegen.cfg import Graph
from vgpusim.ptx import ir

CANONICAL_NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF}
_ARITHMETIC = frozenset(
    "add sub mul fma mad div rcp sqrt rsqrt sin cos ex2 lg2 tanh min max abs neg".split()  # noqa: SIM905
)
_EXPONENT, _MANTISSA = 0x7F800000, 0x007FFFFF


def is_arithmetic(ins: ir.Instruction) -> bool:
    """Whether the instruction turns any f32 NaN into the canonical one."""
    return ins.opcode in _ARITHMETIC and [m for m in ins.modifiers if m in ir.TYPE_NBITS] == ["f32"]


def _is_move(ins: ir.Instruction) -> bool:
    return ins.opcode in ("mov", "selp") and ir.TYPE_NBITS.get(ins.type) == 32 and isinstance(ins.operands[0], ir.Reg)


def _is_nan(bits: int) -> bool:
    return bits & _EXPONENT == _EXPONENT and bits & _MANTISSA != 0


def deferred(graph: Graph) -> frozenset[ir.Reg]:
    """The registers that may hold a NaN which reads of its bits have to make canonical."""
    sources: dict[ir.Reg, set[ir.Reg]] = {}  # of moves, by their target
    found: set[ir.Reg] = set()
    others: set[ir.Reg] = set()
    for block in graph.blocks:
        for ins in block.all():
            for reg in ir.defined(ins):
                if is_arithmetic(ins) and reg.nbits == 32:
                    found.add(reg)
                elif _is_move(ins) and not _moves_nan(ins):
                    moved = [o for o in ins.operands[1:3] if isinstance(o, ir.Reg) and o.nbits != 1]
                    sources.setdefault(reg, set()).update(moved)
                else:
                    others.add(reg)
    found = (found | set(sources)) - others
    while True:
        wrong = {reg for reg in found if not sources.get(reg, set()) <= found}
        if not wrong:
            return frozenset(found)
        found -= wrong


def _moves_nan(ins: ir.Instruction) -> bool:
    """Whether a move has a source that is neither a register nor a constant, or a constant that is a NaN."""
    for operand in ins.operands[1:3] if ins.opcode == "selp" else ins.operands[1:2]:
        match operand:
            case ir.Imm():
                bits = operand.value & 0xFFFFFFFF
            case ir.FloatImm():
                bits = operand.bits if operand.nbits == 32 else ir.narrow_float(operand.bits)
            case ir.Reg():
                continue
            case _:
                return True
        if _is_nan(bits):
            return True
    return False
