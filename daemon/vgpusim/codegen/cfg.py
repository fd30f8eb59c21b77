"""Basic blocks in the order the emitter lays them out: topological, every loop contiguous."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from vgpusim.codegen.program import Program
from vgpusim.ptx import ir
from vgpusim.ptx.error import PtxError

EXIT = -1
YIELD = "vgx.yield"  # not PTX: a warp lets others run, and continues at the next block


@dataclass(slots=True)
class Block:
    """Straight-line code. `terminator` is a branch, return, CTA barrier or YIELD; None means: fall through."""

    instructions: list[ir.Instruction] = field(default_factory=list)
    terminator: ir.Instruction | None = None
    successors: list[int] = field(default_factory=list)  # taken first, then fall through; EXIT: the thread ends
    predecessors: list[int] = field(default_factory=list)

    @property
    def is_barrier(self) -> bool:
        """Whether the warp leaves its function here and comes back."""
        return self.terminator is not None and self.terminator.opcode in ("bar", "barrier", YIELD)

    def all(self) -> Iterable[ir.Instruction]:
        yield from self.instructions
        if self.terminator is not None:
            yield self.terminator


class Yields(Enum):
    """Which other warps a loop that may wait yields to."""

    NOBODY = 0
    OTHER_CTAS = 1  # if the loop reads memory that other CTAs reach
    OTHER_WARPS = 2  # also to other warps of its CTA


@dataclass(slots=True)
class Graph:
    """Blocks by layout position. A loop is (header, last): positions header..last; lanes that wait at the header go
    round again after `last`. Natural loops nest; `irreducible` ones may overlap others."""

    blocks: list[Block]
    loops: list[tuple[int, int]]
    postdominator: list[int]  # immediate; EXIT when none
    irreducible: bool
    waits_for_ctas: bool  # some loop that yields may wait for other CTAs


def build(program: Program, yields: Yields = Yields.NOBODY) -> Graph:
    """`yields`: in which loops a warp can yield in each round."""
    blocks = _split(program)
    waits_for_ctas = _insert_yields(blocks, yields)
    order, natural = _layout(blocks)
    position = {old: new for new, old in enumerate(order)}
    placed = [blocks[old] for old in order]
    for block in placed:
        block.successors = [s if s == EXIT else position[s] for s in block.successors]
    for index, block in enumerate(placed):
        for succ in dict.fromkeys(block.successors):
            if succ != EXIT:
                placed[succ].predecessors.append(index)
    last: dict[int, int] = {}
    for index, block in enumerate(placed):
        for succ in block.successors:
            if succ != EXIT and succ <= index:
                last[succ] = max(last.get(succ, 0), index)
    irreducible = False
    for header in last:
        members = natural.get(order[header])
        if members is None:
            irreducible = True
        else:
            last[header] = max(position[m] for m in members)
    return Graph(placed, sorted(last.items()), _postdominators(placed), irreducible, waits_for_ctas)


def _split(program: Program) -> list[Block]:
    blocks = [Block()]
    labels: dict[str, int] = {}
    for item in program.body:
        if isinstance(item, ir.Label):
            if blocks[-1].instructions or blocks[-1].terminator:
                blocks.append(Block())
            labels[item.name] = len(blocks) - 1
            continue
        if blocks[-1].terminator:
            blocks.append(Block())
        cta_barrier = item.opcode in ("bar", "barrier") and not item.has("warp", "arrive", "cluster")
        if item.opcode in ("bra", "brx", "ret", "exit") or cta_barrier:
            blocks[-1].terminator = item
        else:
            blocks[-1].instructions.append(item)
    for index, block in enumerate(blocks):
        after = index + 1 if index + 1 < len(blocks) else EXIT
        end = block.terminator
        if end is None or block.is_barrier:
            block.successors = [after]
            continue
        match end.opcode:
            case "bra":
                targets = [_target(labels, end.operands[0])]
            case "brx":
                name = end.operands[1]
                assert isinstance(name, ir.Name)
                if name.name not in program.branch_targets:
                    raise PtxError(f"line {end.line}: undefined branch targets {name.name}")
                targets = [_target(labels, ir.Name(t)) for t in program.branch_targets[name.name]]
            case _:
                targets = [EXIT]
        block.successors = targets + ([after] if end.guard else [])
    return blocks


def awaited(block: Block, used: set[ir.Reg]) -> Yields:
    """Which other warps a loop with this block may wait for, because the block reads memory that they write. An atom
    whose result no instruction reads does not wait. `used`: all registers that are read.
    """
    found = Yields.NOBODY
    for ins in block.instructions:
        if (
            (ins.opcode == "atom" and not used.isdisjoint(ir.defined(ins)))
            or ins.opcode == "nanosleep"
            or (ins.opcode == "ld" and ins.has("volatile", "relaxed", "acquire", "mmio", "cv"))
            or (ins.opcode == "mbarrier" and ins.has("test_wait", "try_wait"))
        ):
            if ins.opcode != "mbarrier" and not any(word.startswith("shared") for word in ins.modifiers):
                return Yields.OTHER_CTAS
            found = Yields.OTHER_WARPS
    return found


def _insert_yields(blocks: list[Block], yields: Yields) -> bool:
    """Split the header of each waiting loop, so that a round begins with a yield. True if one may wait for CTAs."""
    if yields is Yields.NOBODY:
        return False
    waits_for_ctas = False
    order, natural = _layout(blocks)
    position = {node: index for index, node in enumerate(order)}
    used = {reg for block in blocks for ins in block.all() for reg in ir.used(ins)}
    waiting = {node: waits_for for node in order if (waits_for := awaited(blocks[node], used)) is not Yields.NOBODY}
    last_latch: dict[int, int] = {}  # position of the last block that branches back to a header
    for node in order:
        for successor in blocks[node].successors:
            if successor in position and position[node] >= position[successor]:
                last_latch[successor] = position[node]
    for header in order:
        if header not in last_latch:
            continue
        first, last = position[header], last_latch[header]
        members = natural.get(header)  # None: irreducible, all from header to last
        waits = {
            waits_for
            for node, waits_for in waiting.items()
            if (first <= position[node] <= last if members is None else node in members)
        }
        waits_for_ctas |= Yields.OTHER_CTAS in waits
        if Yields.OTHER_CTAS in waits or (yields is Yields.OTHER_WARPS and Yields.OTHER_WARPS in waits):
            old = blocks[header]
            blocks.append(Block(old.instructions, old.terminator, old.successors))
            line = next((ins.line for ins in old.all()), 0)
            blocks[header] = Block([], ir.Instruction(YIELD, (), (), line), [len(blocks) - 1])
    return waits_for_ctas


def _target(labels: dict[str, int], operand: ir.Operand) -> int:
    assert isinstance(operand, ir.Name)
    if operand.name not in labels:
        raise PtxError(f"undefined label {operand.name}")
    return labels[operand.name]


def _reverse_postorder(root: int, successors: Callable[[int], Iterable[int]]) -> list[int]:
    seen, post = {root}, []
    stack = [(root, iter(successors(root)))]
    while stack:
        node, rest = stack[-1]
        for succ in rest:
            if succ not in seen:
                seen.add(succ)
                stack.append((succ, iter(successors(succ))))
                break
        else:
            post.append(node)
            stack.pop()
    return post[::-1]


def _dominators(order: list[int], predecessors: Callable[[int], Iterable[int]]) -> dict[int, int]:
    """Immediate dominators by iteration (Cooper, Harvey, Kennedy); order[0] is the root and its own dominator."""
    rank = {node: index for index, node in enumerate(order)}
    dominator = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            new: int | None = None
            for pred in predecessors(node):
                if pred not in dominator:
                    continue
                if new is None:
                    new = pred
                    continue
                a, b = new, pred
                while a != b:
                    while rank[a] > rank[b]:
                        a = dominator[a]
                    while rank[b] > rank[a]:
                        b = dominator[b]
                new = a
            if new is not None and dominator.get(node) != new:
                dominator[node] = new
                changed = True
    return dominator


def _layout(blocks: list[Block]) -> tuple[list[int], dict[int, set[int]]]:
    """Layout order of the reachable blocks, and the members of each natural loop by header."""

    def successors(node: int) -> list[int]:
        return [s for s in blocks[node].successors if s != EXIT]

    order = _reverse_postorder(0, successors)
    predecessors: dict[int, list[int]] = {node: [] for node in order}
    for node in order:
        for succ in successors(node):
            predecessors[succ].append(node)
    dominator = _dominators(order, predecessors.__getitem__)
    rank = {node: index for index, node in enumerate(order)}

    def dominates(a: int, b: int) -> bool:
        while rank[b] > rank[a]:
            b = dominator[b]
        return a == b

    loops: dict[int, set[int]] = {}
    for node in order:
        for succ in successors(node):
            if dominates(succ, node):
                members = loops.setdefault(succ, {succ})
                pending = [node]
                while pending:
                    member = pending.pop()
                    if member not in members:
                        members.add(member)
                        pending += predecessors[member]
    by_size = sorted(loops, key=lambda header: -len(loops[header]))

    def arrange(header: int, nodes: set[int]) -> list[int]:
        """Topological order of `nodes`, entered at `header`, each inner loop arranged as one unit."""
        unit: dict[int, int] = {}
        for inner in by_size:
            if inner != header and inner in nodes and inner not in unit:
                unit.update(dict.fromkeys(loops[inner] & nodes, inner))
        leaving: dict[int, list[int]] = {}
        for node in sorted(nodes, key=rank.__getitem__):
            source = unit.get(node, node)
            for succ in successors(node):
                target = unit.get(succ, succ)
                if succ in nodes and succ != header and target != source:
                    leaving.setdefault(source, []).append(target)
        result: list[int] = []
        for node in _reverse_postorder(unit.get(header, header), lambda n: leaving.get(n, ())):
            result += arrange(node, loops[node] & nodes) if node in loops and node != header else [node]
        return result

    return arrange(0, set(order)), loops


def _postdominators(blocks: list[Block]) -> list[int]:
    exits = [index for index, block in enumerate(blocks) if EXIT in block.successors]
    order = _reverse_postorder(EXIT, lambda node: exits if node == EXIT else blocks[node].predecessors)
    dominator = _dominators(order, lambda node: blocks[node].successors if node != EXIT else ())
    return [dominator.get(index, EXIT) for index in range(len(blocks))]
