"""How a register's value varies over the lanes of a warp, and which blocks may run with some lanes missing.

A shape has a stride: 0 means all lanes agree, n that lane l holds base + n*l, None that lanes are unrelated. Uniform
and affine registers are kept as the one scalar of lane 0. Lanes move in lockstep: a loop is left only when all its
lanes have left it, so a register needs no per-lane copy just because its block is divergent, only when lanes that
wait in one place still need it while others overwrite it: those are the conflicts.

Assumption: signed 32-bit indices do not overflow inside a warp (as C assumes). Unsigned ones may wrap below zero, so
widening them keeps the affine shape only when it derives from thread and block numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from vgpud.sim import ir
from vgpud.sim.abi import WARP
from vgpud.sim.cfg import EXIT, Graph
from vgpud.sim.inline import Program
from vgpud.sim.liveness import Liveness


@dataclass(frozen=True, slots=True)
class Shape:
    stride: int | None
    aligned: bool = False  # lane 0 holds a multiple of 32, stride 1
    nowrap: bool = False  # a small non-negative number: widening it cannot wrap inside a warp


UNIFORM = Shape(0)
VARYING = Shape(None)
_MAX_STRIDE = 1 << 24


def join(a: Shape, b: Shape) -> Shape:
    if a == b:
        return a
    if a.stride is None or a.stride != b.stride:
        return VARYING
    return Shape(a.stride, a.aligned and b.aligned, a.nowrap and b.nowrap)


@dataclass(slots=True)
class Analysis:
    shapes: dict[ir.Reg, Shape]
    divergent: set[int] = field(default_factory=set)  # blocks that may run without some live lanes
    conflicts: int = 0  # registers (bits of Liveness) that keep the value of lanes not running
    constants: dict[ir.Reg, int] = field(default_factory=dict)
    joins: set[int] = field(default_factory=set)  # where lanes of divergent branches meet again
    spin_loops: set[int] = field(default_factory=set)  # headers of loops that may wait for other lanes

    def constant(self, operand: ir.Operand) -> int | None:
        """The value of an operand known at compile time, as written."""
        if isinstance(operand, ir.Imm):
            return operand.value
        return self.constants.get(operand) if isinstance(operand, ir.Reg) else None


def special_shape(name: str, block: tuple[int, int, int]) -> Shape:
    """Shape of a special register for a block shape."""
    flat = block[1] == block[2] == 1
    rows = flat or block[0] % WARP == 0  # every warp lies in one row
    if name == "%laneid" or (name == "%tid.x" and rows):
        return Shape(1, True, True)
    if name in ("%tid.x", "%tid.y", "%tid.z"):
        axis = "xyz".index(name[-1])
        return UNIFORM if rows or block[axis] == 1 else VARYING
    if name.startswith("%lanemask"):
        return VARYING
    if name.split(".")[0] in ("%ctaid", "%ntid", "%nctaid"):
        return Shape(0, False, True)
    return UNIFORM


class _Analyser:
    def __init__(self, program: Program, graph: Graph, live: Liveness, block: tuple[int, int, int]) -> None:
        self.program, self.graph, self.live, self.block = program, graph, live, block
        self.local_stride = local_stride(program)
        self.result = Analysis({})
        self.written = 0
        for defs in live.defs:
            self.written |= defs

    def run(self) -> Analysis:
        result = self.result
        self._find_constants()
        self._find_spin_loops()
        if self.graph.irreducible:
            result.divergent = set(range(len(self.graph.blocks)))
            result.joins = set(result.divergent)
            result.conflicts = (1 << len(self.live.registers)) - 1
            result.shapes = dict.fromkeys(self.live.registers, VARYING)
            return result
        done: set[int] = set()
        while True:
            self._propagate()
            new = False
            for index, block in enumerate(self.graph.blocks):
                if index not in done and self._is_divergent(block.terminator):
                    done.add(index)
                    new = True
                    self._diverge(index)
            if not new:
                break
            for reg in self.live.names(result.conflicts):
                result.shapes[reg] = VARYING
        for reg in self.live.registers:
            result.shapes.setdefault(reg, UNIFORM)  # never written: any value will do
        return result

    # ---- divergence

    def _is_divergent(self, end: ir.Instruction | None) -> bool:
        if end is None or end.opcode in ("bar", "barrier"):
            return False
        if end.guard is not None and self._shape(end.guard).stride != 0:
            return True
        return end.opcode == "brx" and self._shape(end.operands[0]).stride != 0

    def _diverge(self, branch: int) -> None:
        blocks, result, live = self.graph.blocks, self.result, self.live
        spins = any(header in result.spin_loops for header, last in self.graph.loops if header <= branch <= last)
        stop = EXIT if spins else self.graph.postdominator[branch]
        if stop != EXIT:
            result.joins.add(stop)
        written, needed = [], []
        for first in dict.fromkeys(blocks[branch].successors):
            side: set[int] = set()
            pending = [first]
            while pending:
                node = pending.pop()
                if node in (EXIT, stop) or node in side:
                    continue
                side.add(node)
                if node != branch or spins:
                    pending += blocks[node].successors
            result.divergent |= side
            defs = lives = 0
            for node in side:
                defs |= live.defs[node]
                lives |= live.live_in[node]
            if stop != EXIT:
                lives |= live.live_in[stop]
            written.append(defs)
            needed.append(lives)
        for i, defs in enumerate(written):
            for j, lives in enumerate(needed):
                if i != j:
                    result.conflicts |= defs & lives

    def _find_spin_loops(self) -> None:
        """Loops that read memory others write, so that a lane inside may wait for one outside."""
        for header, last in self.graph.loops:
            for block in self.graph.blocks[header : last + 1]:
                for ins in block.instructions:
                    if ins.opcode in ("atom", "mbarrier") or (
                        ins.opcode == "ld" and ins.has("volatile", "relaxed", "acquire")
                    ):
                        self.result.spin_loops.add(header)

    def _find_constants(self) -> None:
        values: dict[ir.Reg, list[ir.Instruction]] = {}
        for block in self.graph.blocks:
            for ins in block.instructions:
                for reg in ir.defined(ins):
                    values.setdefault(reg, []).append(ins)
        for reg, defs in values.items():
            ins = defs[0]
            if len(defs) == 1 and ins.opcode == "mov" and ins.guard is None and len(ins.operands) == 2:
                source = ins.operands[1]
                if isinstance(source, ir.Imm) and reg.type != "pred":
                    self.result.constants[reg] = source.value

    # ---- shapes

    def _propagate(self) -> None:
        shapes = self.result.shapes
        changed = True
        while changed:
            changed = False
            for block in self.graph.blocks:
                for ins in block.all():
                    targets = ir.defined(ins)
                    if not targets:
                        continue
                    if any(reg not in shapes and self._is_defined(reg) for reg in ir.used(ins)):
                        continue
                    new = self._transfer(ins)
                    if ins.guard is not None and self._shape(ins.guard).stride != 0:
                        new = VARYING
                    for reg in targets:
                        old = shapes.get(reg)
                        shape = VARYING if reg.type == "pred" and new.stride != 0 else new
                        merged = shape if old is None else join(old, shape)
                        if merged != old:
                            shapes[reg] = merged
                            changed = True
            if not changed:  # registers only reachable through cycles of themselves
                for block in self.graph.blocks:
                    for ins in block.all():
                        for reg in ir.defined(ins):
                            if reg not in shapes:
                                shapes[reg] = VARYING
                                changed = True

    def _is_defined(self, reg: ir.Reg) -> bool:
        return bool(self.written >> self.live.index[reg] & 1)

    def _shape(self, operand: ir.Operand) -> Shape:
        match operand:
            case ir.Reg():
                return self.result.shapes.get(operand, UNIFORM)
            case ir.Special():
                return special_shape(operand.name, self.block)
            case ir.Not():
                return self._shape(operand.operand)
            case ir.Address():
                return self._shape(operand.base)
            case ir.Symbol() if operand.name in self.program.locals:
                return Shape(self.local_stride)
            case ir.Imm():
                return Shape(0, False, 0 <= operand.value < 1 << 30)
            case ir.Vector():
                shapes = [self._shape(item) for item in operand.items]
                return UNIFORM if all(s.stride == 0 for s in shapes) else VARYING
        return UNIFORM

    def _transfer(self, ins: ir.Instruction) -> Shape:
        op = ins.opcode
        if op in ("atom", "shfl", "match", "mma", "wmma", "ldmatrix", "movmatrix", "elect", "call", "cp", "mbarrier"):
            return VARYING
        if op == "activemask":
            return UNIFORM
        if op in ("vote", "redux"):
            return UNIFORM if self._shape(ins.operands[-1]).stride == 0 and ins.has("sync") else VARYING
        if op in ("bar", "barrier"):
            return UNIFORM
        shapes = [self._shape(operand) for operand in ins.operands[1:]]
        if op == "ld" and ins.has("local"):
            return VARYING
        if ins.has("cc") or op in ("addc", "subc", "madc"):
            return VARYING
        if all(s.stride == 0 for s in shapes):
            nowrap = op in ("mov", "add", "mul", "mad", "shl", "cvt") and all(s.nowrap for s in shapes)
            return Shape(0, False, nowrap and not ins.type.startswith("f"))
        if any(s.stride is None for s in shapes) or ins.type[:1] == "f" or len(ins.operands) < 2:
            return VARYING
        return self._affine(ins, shapes)

    def _affine(self, ins: ir.Instruction, shapes: list[Shape]) -> Shape:
        op = ins.opcode
        strides = [s.stride or 0 for s in shapes]
        nowrap = all(s.nowrap for s in shapes)
        constant = self.result.constant
        match op:
            case "mov" | "cvta" if not isinstance(ins.operands[1], ir.Vector) and not isinstance(
                ins.operands[0], ir.Vector
            ):
                return shapes[0]
            case "cvt":
                return self._convert(ins, shapes[0])
            case "add" if not ins.has("sat"):
                return self._bounded(strides[0] + strides[1], nowrap)
            case "sub" if not ins.has("sat"):
                return self._bounded(strides[0] - strides[1], False)
            case "shl":
                amount = constant(ins.operands[2])
                if amount is not None and 0 <= amount < 24:
                    return self._bounded(strides[0] << amount, nowrap)
            case "shr":
                if shapes[0].aligned and constant(ins.operands[2]) == 5:
                    return Shape(0, False, True)
            case "and":
                if shapes[0].aligned and constant(ins.operands[2]) == WARP - 1:
                    return Shape(1, True, True)
            case "mul" | "mad" if ins.has("lo", "wide"):
                factor, stride = constant(ins.operands[2]), strides[0]
                if strides[0] == 0:
                    factor, stride = constant(ins.operands[1]), strides[1]
                elif strides[1] != 0:
                    return VARYING
                if stride == 0:
                    factor = 0
                if factor is None or (stride and ins.has("wide") and ins.type[0] == "u" and not (
                    shapes[0].nowrap if strides[0] else shapes[1].nowrap
                )):  # fmt: skip
                    return VARYING
                if ins.has("wide") and ins.type[0] == "u" and factor < 0:
                    return VARYING
                return self._bounded(stride * factor + (strides[2] if op == "mad" else 0), nowrap and factor >= 0)
        return VARYING

    def _convert(self, ins: ir.Instruction, shape: Shape) -> Shape:
        names = [m for m in ins.modifiers if m in ir.TYPE_NBITS]
        if len(names) != 2 or ins.has("sat") or any(name[0] not in "us" for name in names):
            return VARYING
        to, source = names
        wide, narrow = ir.TYPE_NBITS[to], ir.TYPE_NBITS[source]
        if narrow < 32 or wide < 32:
            return VARYING
        if wide <= narrow or source[0] == "s" or shape.nowrap:
            return Shape(shape.stride, wide == narrow and shape.aligned, shape.nowrap and wide >= narrow)
        return VARYING

    def _bounded(self, stride: int, nowrap: bool) -> Shape:
        return Shape(stride, False, nowrap) if abs(stride) <= _MAX_STRIDE else VARYING


def local_stride(program: Program) -> int:
    """Bytes between the local memories of two lanes: a multiple of 16, never 0 when there is any."""
    return (program.local_nbytes + 15) // 16 * 16


def analyse(program: Program, graph: Graph, live: Liveness, block: tuple[int, int, int]) -> Analysis:
    """Shapes of all registers of a kernel launched with `block` threads."""
    return _Analyser(program, graph, live, block).run()
