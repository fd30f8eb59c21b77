"""Products by pairs: matrix kernels load two neighbours x and y of a tile's row at once and multiply both by z, which
many lanes share. As rows of x y x y ..., as they lie in memory, they need no separation: `fma d, x, z, c` and
`fma e, y, z, f` are one operation on 64 elements, and so are those that go on with d and e. Each element is computed as
before, so the bits are the same."""

from __future__ import annotations

from collections.abc import Sequence

from vgpusim.codegen import emit_float
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emitter import BEGIN, END, Emitter
from vgpusim.codegen.lane_value import LANES, Form
from vgpusim.ptx import ir

_PAIRS = Form(2 * WARP)
_LOW_BITS = 3  # of the lane number: eight lanes are a vector of pairs, or share z
_LEAST = 8  # pairs of a block that are worth it
_PAIR = "pair"  # in keys of Emitter.ready

Plan = dict[int, ir.Instruction | None]  # by id: of a pair's second the first; of a first None


def plan(e: Emitter, instructions: Sequence[ir.Instruction]) -> Plan:
    """The pairs of a block that all lanes run."""
    neighbours: dict[ir.Reg, tuple[ir.Reg, int]] = {}  # of x: y, and where they are loaded
    shared: set[ir.Reg] = set()
    for number, ins in enumerate(instructions):
        if ins.opcode != "ld" or ins.guard is not None or not isinstance(ins.operands[1], ir.Address):
            continue
        base, targets = ins.operands[1].base, ir.defined(ins)
        steps = e.shape(base).pattern.steps[:_LOW_BITS] if isinstance(base, ir.Reg) else ()
        if steps == (0,) * _LOW_BITS:
            shared |= set(targets)
        elif steps == (8, 16, 32) and ins.has("v2") and len(set(targets)) == 2 and ir.TYPE_NBITS[ins.type] == 32:
            neighbours[targets[0]] = targets[1], number
    if not neighbours:
        return {}
    products: dict[tuple[object, ...], list[int]] = {}  # by both factors
    for number, ins in enumerate(instructions):
        if ins.opcode == "fma" and ins.modifiers in (("rn", "f32"), ("rn", "ftz", "f32")) and _is_simple(e, ins):
            for one, z in (ins.operands[1:3], ins.operands[2:0:-1]):
                if z in shared:
                    products.setdefault((one, z, ins.modifiers), []).append(number)
    found: Plan = {}
    for (x, *rest), numbers in products.items():
        y, loaded = neighbours.get(x, (None, 0)) if isinstance(x, ir.Reg) else (None, 0)
        for first in numbers if y is not None else ():
            for second in products.get((y, *rest), ()):
                earlier, later = instructions[first], instructions[second]
                if loaded < first < second and id(earlier) not in found and id(later) not in found:
                    if _may_wait(instructions, first, second):
                        found[id(earlier)], found[id(later)] = None, earlier
                    break
    return found if len(found) >= 2 * _LEAST else {}


def couples(e: Emitter) -> dict[ir.Reg, tuple[ir.Reg, ir.Reg]]:
    """Pairs of registers that stay rows of pairs from block to block: sums to which a block adds such rows."""
    found: dict[ir.Reg, set[tuple[ir.Reg, ir.Reg]]] = {}
    for index, block in enumerate(e.graph.blocks):
        pairs = {} if index in e.analysis.divergent else plan(e, block.instructions)
        both = [(pairs[id(ins)], ins) for ins in block.instructions if pairs.get(id(ins)) is not None]
        results = {tuple(ins.operands[0] for ins in pair if ins is not None) for pair in both}
        for first, second in both:
            assert first is not None
            one, other = first.operands[3], second.operands[3]
            if (one, other) in results and isinstance(one, ir.Reg) and isinstance(other, ir.Reg):
                for reg in (one, other):
                    found.setdefault(reg, set()).add((one, other))
    known = {reg: next(iter(sums)) for reg, sums in found.items() if len(sums) == 1}
    return {reg: pair for reg, pair in known.items() if all(known.get(other) == pair for other in pair)}


def _is_simple(e: Emitter, ins: ir.Instruction) -> bool:
    """Whether all operands are different values of lanes, and the result's NaN is made canonical by its readers."""
    regs = [operand for operand in ins.operands if isinstance(operand, ir.Reg)]
    return (
        ins.guard is None
        and len(regs) == len(ins.operands)
        and regs[0] in e.deferred
        and all(not e.shape(reg).pattern.known and not e.is_constant(reg) for reg in regs)
    )


def _may_wait(instructions: Sequence[ir.Instruction], first: int, second: int) -> bool:
    """Whether the first of two instructions may be done where the second one is."""
    reads, result = set(ir.used(instructions[first])), instructions[first].operands[0]
    if result in ir.used(instructions[second]) or result == instructions[second].operands[0]:
        return False
    for ins in instructions[first + 1 : second]:
        targets = ir.defined(ins)
        if result in targets or result in ir.used(ins) or not reads.isdisjoint(targets):
            return False
    return True


def note(e: Emitter, ins: ir.Instruction, row: str) -> None:
    """Remember a row of pairs that an instruction has loaded, if all lanes have it: the others keep what they had."""
    targets = ir.defined(ins)
    if e.pairs and ins.guard is None and len(set(targets)) == 2 and ir.TYPE_NBITS[ins.type] == 32:
        e.ready[(_PAIR, *targets)] = row


def emit(e: Emitter, first: ir.Instruction, second: ir.Instruction) -> None:
    """Both instructions of a pair."""
    e.instruction, e.guard = second, None
    e.lines.append(f"{BEGIN}{first.line}, {second.line}: {second.text}")
    (d, *one), (f, *other) = first.operands, second.operands
    assert isinstance(d, ir.Reg)
    assert isinstance(f, ir.Reg)
    values = [_pair(e, a, b) for a, b in zip(one, other, strict=True)]
    ftz = second.has("ftz")
    args = [emit_float.operand(e, _PAIRS, text, "f32", ftz)[1] for text in values]
    row = emit_float.result_bits(e, _PAIRS, e.fcall(_PAIRS, "fma", "float", *args), "f32", ftz)
    if e.couples.get(d) == (d, f):
        e.forget(d)
        e.forget(f)
        e.e(f"store {_PAIRS.int(32)} {row}, ptr {e.slot(d)}, align 64")
        e.ready[(_PAIR, d, f)] = row
        return
    for target, side in ((d, 0), (f, 1)):
        order = ", ".join(f"i32 {2 * lane + side}" for lane in range(WARP))
        text = f"shufflevector {_PAIRS.int(32)} {row}, {_PAIRS.int(32)} poison, <{WARP} x i32> <{order}>"
        e.put(target, LANES, e.v(text), 32)
    e.ready[(_PAIR, d, f)] = row
    e.lines.append(END)


def _pair(e: Emitter, a: ir.Operand, b: ir.Operand) -> str:
    """Lanes' values of two registers, alternating."""
    known = e.ready.get((_PAIR, a, b))
    if known is not None:
        return known
    if isinstance(a, ir.Reg) and e.couples.get(a) == (a, b):
        return e.v(f"load {_PAIRS.int(32)}, ptr {e.slot(a)}, align 64")
    (x, y) = (e.vector(e.read(operand, 32, any_nan=True)) for operand in (a, b))
    order = ", ".join(f"i32 {lane}, i32 {lane + WARP}" for lane in range(WARP))
    return e.v(f"shufflevector {LANES.int(32)} {x}, {LANES.int(32)} {y}, <{2 * WARP} x i32> <{order}>")
