"""How a register's value varies over the lanes of a warp, and which blocks may run with some lanes missing.

A shape has a lane pattern (lane_pattern.py). A register whose pattern is known is kept as the one scalar of lane 0;
any other is a vector, whose pattern, where it says something, tells which of its lanes are neighbours. Lanes move in
lockstep: a loop is left only when all its lanes have left it, so a register needs no per-lane copy just because its
block is divergent, only when lanes that wait in one place still need it while others overwrite it: those are the
conflicts.

Assumption: signed 32-bit indices do not overflow inside a warp (as C assumes). Unsigned ones may wrap below zero, so
widening them keeps the affine shape only when it derives from thread and block numbers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from vgpusim.codegen import lane_pattern
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.cfg import EXIT, Graph
from vgpusim.codegen.lane_pattern import Pattern, digit, linear
from vgpusim.codegen.liveness import Liveness
from vgpusim.codegen.program import Program
from vgpusim.ptx import ir

_MAX_ALIGNMENT = 1 << 31
_SMALL = 1 << 30


@dataclass(frozen=True, slots=True)
class Shape:
    pattern: Pattern
    alignment: int = 1  # a power of two: lane 0 holds a multiple of it
    nowrap: bool = False  # a small non-negative number: widening it cannot wrap inside a warp

    @property
    def uniform(self) -> bool:
        return self.pattern.uniform


def _reads_others(ins: ir.Instruction) -> bool:
    """Whether an instruction reads memory that other lanes write."""
    return ins.opcode in ("atom", "mbarrier") or (
        ins.opcode == "ld" and ins.has("volatile", "relaxed", "acquire", "mmio", "cv")
    )


UNIFORM = Shape(lane_pattern.UNIFORM)
VARYING = Shape(lane_pattern.VARYING)


def join(a: Shape, b: Shape) -> Shape:
    return Shape(a.pattern.join(b.pattern), min(a.alignment, b.alignment), a.nowrap and b.nowrap)


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
    if name == "%laneid":
        return Shape(linear(1), _MAX_ALIGNMENT, True)
    if name in ("%tid.x", "%tid.y", "%tid.z"):
        return thread_shape("xyz".index(name[-1]), block)
    if name.startswith("%lanemask"):
        return VARYING
    size = _block_size(name, block)
    if size is not None:
        return Shape(lane_pattern.UNIFORM, alignment_of(size), True)
    return Shape(lane_pattern.UNIFORM, 1, name.split(".")[0] in ("%ctaid", "%nctaid"))


def _block_size(name: str, block: tuple[int, int, int]) -> int | None:
    """The value of %ntid.x, %ntid.y or %ntid.z; None of other registers."""
    register, _, axis = name.partition(".")
    return block["xyz".index(axis)] if register == "%ntid" and axis in ("x", "y", "z") else None


def thread_shape(axis: int, block: tuple[int, int, int]) -> Shape:
    """Shape of a thread number. Lane l of warp w is thread t = 32*w + l of the block, whose numbers are t % width,
    t / width % height and t / (width * height)."""
    width, height, depth = block
    if block[axis] == 1:
        return Shape(lane_pattern.UNIFORM, _MAX_ALIGNMENT, True)
    if width % WARP == 0 or height == depth == 1:  # a warp is in one row
        return Shape(linear(1), WARP, True) if axis == 0 else Shape(lane_pattern.UNIFORM, 1, True)
    if width & (width - 1):
        return VARYING
    row_bits = width.bit_length() - 1  # low bits of the lane number, the place in a row; the others count rows
    rows = WARP >> row_bits  # of a warp
    if axis == 0:
        return Shape(digit(0, row_bits), _MAX_ALIGNMENT, True)
    if depth == 1 or height % rows == 0:
        return Shape(digit(row_bits), rows, True) if axis == 1 else Shape(lane_pattern.UNIFORM, 1, True)
    if height & (height - 1):
        return VARYING
    plane_bits = row_bits + height.bit_length() - 1
    if axis == 1:
        return Shape(digit(row_bits, plane_bits), _MAX_ALIGNMENT, True)
    return Shape(digit(plane_bits), WARP >> plane_bits, True)


class _Analyser:
    def __init__(self, program: Program, graph: Graph, live: Liveness, block: tuple[int, int, int]) -> None:
        self.program, self.graph, self.live, self.block = program, graph, live, block
        self.local_stride = local_stride(program)
        self.result = Analysis({})
        self.written = 0
        for defs in live.defs:
            self.written |= defs
        every = [(ins, ir.defined(ins)) for block in graph.blocks for ins in block.all()]
        # Instructions with the registers that they write, and those they read that any instruction writes.
        self.definitions = [
            (ins, targets, [reg for reg in ir.used(ins) if self._is_defined(reg)]) for ins, targets in every if targets
        ]

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
        if end.guard is not None and not self._shape(end.guard).uniform:
            return True
        return end.opcode == "brx" and not self._shape(end.operands[0]).uniform

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
        reads = [int(any(map(_reads_others, block.instructions))) for block in self.graph.blocks]
        before = list(itertools.accumulate(reads, initial=0))  # how many of the blocks before each
        self.result.spin_loops |= {header for header, last in self.graph.loops if before[last + 1] > before[header]}

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
                size = _block_size(source.name, self.block) if isinstance(source, ir.Special) else None
                if size is not None:
                    self.result.constants[reg] = size

    # ---- shapes

    def _propagate(self) -> None:
        shapes = self.result.shapes
        changed = True
        while changed:
            changed = False
            for ins, targets, sources in self.definitions:
                if any(reg not in shapes for reg in sources):
                    continue
                new = self._transfer(ins)
                if ins.guard is not None and not self._shape(ins.guard).uniform:
                    new = VARYING
                for reg in targets:
                    old = shapes.get(reg)
                    shape = VARYING if reg.type == "pred" and not new.uniform else new
                    merged = shape if old is None else join(old, shape)
                    if merged != old:
                        shapes[reg] = merged
                        changed = True
            if not changed:  # registers only reachable through cycles of themselves
                for _, targets, _ in self.definitions:
                    for reg in targets:
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
                return Shape(linear(self.local_stride))
            case ir.Imm():
                return Shape(lane_pattern.UNIFORM, alignment_of(operand.value), 0 <= operand.value < _SMALL)
            case ir.Vector():
                shapes = [self._shape(item) for item in operand.items]
                return UNIFORM if all(s.uniform for s in shapes) else VARYING
        return UNIFORM

    def _transfer(self, ins: ir.Instruction) -> Shape:
        op = ins.opcode
        if op in (
            "atom",
            "shfl",
            "match",
            "mma",
            "wmma",
            "wgmma",
            "ldmatrix",
            "movmatrix",
            "elect",
            "call",
            "cp",
            "mbarrier",
            "tex",
            "tld4",
            "suld",
            "unset load",
        ):
            return VARYING
        if op == "activemask":
            return UNIFORM
        if op in ("vote", "redux"):
            return UNIFORM if self._shape(ins.operands[-1]).uniform and ins.has("sync") else VARYING
        if op in ("bar", "barrier"):
            return UNIFORM
        shapes = [self._shape(operand) for operand in ins.operands[1:]]
        if op == "ld" and ins.has("local"):
            return VARYING
        if ins.has("cc") or op in ("addc", "subc", "madc"):
            return VARYING
        if all(s.uniform for s in shapes):
            nowrap = op in ("mov", "add", "mul", "mad", "shl", "cvt") and all(s.nowrap for s in shapes)
            integer = ins.type[:1] in ("u", "s", "b") and not ins.type.endswith("x2")
            return Shape(lane_pattern.UNIFORM, self._alignment(ins, shapes) if integer else 1, nowrap and integer)
        if ins.type[:1] == "f" or ins.type.endswith("x2") or len(ins.operands) < 2:
            return VARYING
        return self._patterned(ins, shapes)

    def _alignment(self, ins: ir.Instruction, shapes: list[Shape]) -> int:
        """A power of two that divides lane 0's integer result."""
        first, constant = shapes[0].alignment, self.result.constant
        match ins.opcode:
            case "mov" if isinstance(ins.operands[0], ir.Reg) and not isinstance(ins.operands[1], ir.Vector):
                return first
            case "cvt" if all(m[0] in "us" for m in ins.modifiers if m in ir.TYPE_NBITS) and not ins.has("sat"):
                return first
            case "add" | "sub" if not ins.has("sat"):
                return min(first, shapes[1].alignment)
            case "mul" | "mad" if ins.has("lo", "wide") and not ins.has("sat"):
                product = min(first * shapes[1].alignment, _MAX_ALIGNMENT)
                return min(product, shapes[2].alignment) if ins.opcode == "mad" else product
            case "shl":
                amount = constant(ins.operands[2])
                return min(first << amount, _MAX_ALIGNMENT) if amount is not None and 0 <= amount < 32 else 1
            case "and":
                mask = constant(ins.operands[2])
                return max(first, alignment_of(mask)) if mask is not None else 1
        return 1

    def _patterned(self, ins: ir.Instruction, shapes: list[Shape]) -> Shape:
        """The shape of an integer result whose sources are not all uniform."""
        first, constant = shapes[0], self.result.constant
        nowrap = all(s.nowrap for s in shapes)
        aligned = self._alignment(ins, shapes)
        match ins.opcode:
            case "mov" if isinstance(ins.operands[0], ir.Reg) and not isinstance(ins.operands[1], ir.Vector):
                return first
            case "cvta":
                return Shape(first.pattern)
            case "cvt":
                return self._convert(ins, first)
            case "add" if not ins.has("sat"):
                return Shape(first.pattern.sum(shapes[1].pattern), aligned, nowrap)
            case "sub" if not ins.has("sat"):
                return Shape(first.pattern.difference(shapes[1].pattern), aligned, False)
            case "mul" | "mad" if ins.has("lo", "wide") and not ins.has("sat"):
                return self._product(ins, shapes, aligned)
            case "shl":
                amount = constant(ins.operands[2])
                if amount is not None and 0 <= amount < 24:
                    return Shape(first.pattern.scaled(1 << amount), aligned, nowrap)
            case "or" | "xor" if shapes[0].uniform or shapes[1].uniform:
                if constant(ins.operands[2]) is not None and first.pattern.separate(first.alignment):
                    return self._bitwise(ins, first, constant(ins.operands[2]))
                # Lanes differ in bits below those that the uniform operand may have set.
                lanes = next(shape for shape in shapes if not shape.uniform)
                common = min(shape.alignment for shape in shapes)
                if lanes.pattern.separate(common):
                    return Shape(lanes.pattern, common, nowrap)
            case "shr" | "and" if first.pattern.separate(first.alignment):
                return self._bitwise(ins, first, constant(ins.operands[2]))
        return VARYING

    def _product(self, ins: ir.Instruction, shapes: list[Shape], aligned: int) -> Shape:
        a, b = shapes[:2]
        if not a.uniform and not b.uniform:
            return VARYING
        value, factor = (b, self.result.constant(ins.operands[1])) if a.uniform else (
            a, self.result.constant(ins.operands[2])
        )  # fmt: skip
        may_wrap = not value.nowrap or (factor is not None and factor < 0)
        if ins.has("wide") and ins.type[0] == "u" and not value.uniform and may_wrap:
            return VARYING  # after widening, lanes whose sum wrapped are far from the others
        pattern = value.pattern.scaled(factor)
        if ins.opcode == "mad":
            pattern = pattern.sum(shapes[2].pattern)
        return Shape(pattern, aligned, all(s.nowrap for s in shapes) and factor is not None and factor >= 0)

    def _bitwise(self, ins: ir.Instruction, shape: Shape, operand: int | None) -> Shape:
        """The shape of a shift or logic instruction between a constant and a value with a bit pattern."""
        pattern, aligned = shape.pattern, shape.alignment
        if operand is None:
            return VARYING
        if ins.opcode == "shr" and 0 <= operand < 32:
            small = shape.nowrap or (ins.type[0] != "s" and operand > 1)
            return Shape(pattern.bits(lambda step: step >> operand), max(1, aligned >> operand), small)
        if ins.opcode == "and":
            small = shape.nowrap or 0 <= operand < _SMALL
            aligned = _MAX_ALIGNMENT if 0 <= operand < aligned else max(aligned, alignment_of(operand))
            return Shape(pattern.bits(lambda step: step & operand), aligned, small)
        if ins.opcode in ("or", "xor") and 0 <= operand < aligned and pattern == pattern.bits(lambda s: s & ~operand):
            return Shape(pattern, min(aligned, alignment_of(operand)), shape.nowrap)
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
            return Shape(shape.pattern, shape.alignment, shape.nowrap and wide >= narrow)
        return VARYING


def alignment_of(value: int) -> int:
    """The largest power of two that divides a constant."""
    return min(value & -value, _MAX_ALIGNMENT) if value else _MAX_ALIGNMENT


def local_stride(program: Program) -> int:
    """Bytes between the local memories of two lanes: a multiple of 16, never 0 when there is any."""
    return (program.local_nbytes + 15) // 16 * 16


def analyse(program: Program, graph: Graph, live: Liveness, block: tuple[int, int, int]) -> Analysis:
    """Shapes of all registers of a kernel launched with `block` threads."""
    return _Analyser(program, graph, live, block).run()
