"""What must hold after each pass. The tests check it for every kernel that they compile; a violation is a mistake of
the pass, whatever the image holds."""

from __future__ import annotations

from vgpusim.codegen import inline
from vgpusim.codegen.cfg import EXIT
from vgpusim.codegen.passes import State
from vgpusim.ptx import ir

_TERMINATORS = frozenset(["bra", "brx", "ret", "exit"])
_SAME_WIDTH = frozenset(  # instructions whose register operands are all as wide as their type
    "add sub min max and or xor not neg abs rem div fma sad".split()  # noqa: SIM905
)


_SAME_FOR_ALL = ("vote", "redux", "bar", "barrier")  # their result is the same in all lanes


class Violation(AssertionError):
    """An invariant that a pass has broken."""


def check(name: str, state: State) -> None:
    """Check what pass `name` has made."""
    {
        "inline": check_program,
        "unset values": check_program,
        "control flow": check_graph,
        "constants": check_constants,
        "liveness": check_liveness,
        "uniformity": check_uniformity,
        "NaN payloads": check_deferred,
    }[name](state)


def _require(condition: bool, what: object) -> None:
    if not condition:
        raise Violation(str(what))


def check_program(state: State) -> None:
    """Check that labels and symbols exist, each name is one register, and operands have their type's width."""
    program = state.program
    labels = [item.name for item in program.body if isinstance(item, ir.Label)]
    _require(len(labels) == len(set(labels)), "a label stands twice")
    known = set(labels)
    registers: dict[str, ir.Reg] = {}
    functions = state.module.reachable(state.name)
    spaces = {*program.shared, *program.locals, *program.params, *program.symbols}
    spaces |= {
        name for function in functions for name in (*function.symbols, *function.variables)
    }  # some operands are refused only when they are used
    loose = {item.line for function in functions for item in function.body if not _has_widths(item)}
    defined: set[ir.Reg] = set()
    used: set[ir.Reg] = set()
    for item in program.body:
        if isinstance(item, ir.Label):
            continue
        _require(not item.opcode.startswith("vgx."), f"{item.text} is left")
        _require(item.guard is None or item.guard.nbits == 1, f"{item.text}: guard of {item.guard}")
        for reg in (*ir.defined(item), *ir.used(item)):
            _require(registers.setdefault(reg.name, reg).nbits == reg.nbits, f"{reg.name} has two widths")
        defined.update(ir.defined(item))
        used.update(ir.used(item))
        if item.opcode == "bra":
            (target,) = item.operands
            _require(isinstance(target, ir.Name) and target.name in known, f"branch to {target}")
        if item.opcode == "call":
            _require(isinstance(item.operands[1], ir.Name) and item.operands[1].name in inline.BUILTINS, item)
        for operand in item.operands:
            for symbol in _symbols(operand):
                _require(symbol in spaces or item.opcode == "trap", f"{item.text}: {symbol} is nowhere")
        _require(item.line in loose or _has_widths(item), f"line {item.line}: widths of {item.text} {item.operands}")
    for targets in program.branch_targets.values():
        _require(known.issuperset(targets), f"branch targets {targets}")
    _check_definitions(state, defined, used)


def _symbols(operand: ir.Operand) -> list[str]:
    match operand:
        case ir.Symbol():
            return [operand.name]
        case ir.Address(base=ir.Symbol() as symbol):
            return [symbol.name]
        case ir.Vector():
            return [name for item in operand.items for name in _symbols(item)]
    return []


def _has_widths(ins: ir.Instruction | ir.Label) -> bool:
    """Whether register operands are as wide as the instruction's type. Images may be loose; passes may not."""
    if isinstance(ins, ir.Label) or ins.opcode not in _SAME_WIDTH:
        return True
    types = [m for m in ins.modifiers if m in ir.TYPE_NBITS]
    if len(types) != 1:
        return True
    nbits = 1 if types[0] == "pred" else max(16, ir.TYPE_NBITS[types[0]])
    return all(operand.nbits == nbits for operand in ins.operands if isinstance(operand, ir.Reg))


def _check_definitions(state: State, defined: set[ir.Reg], used: set[ir.Reg]) -> None:
    """A register without a definition has none in the function that it comes from either."""
    undefined: set[str] = set()
    for function in state.module.reachable(state.name):
        instructions = [item for item in function.body if isinstance(item, ir.Instruction)]
        there = {reg.name for item in instructions for reg in ir.defined(item)}
        undefined |= {reg.name for item in instructions for reg in ir.used(item)} - there
    for reg in used - defined:
        original = reg.name.partition("@")[0]
        _require(original in undefined or "+" in reg.name, f"{reg.name} is used and defined nowhere")


def check_graph(state: State) -> None:
    """Edges agree, blocks end where they branch, and lanes that go back find the header of a loop."""
    blocks = state.graph.blocks
    loops = dict(state.graph.loops)
    for index, block in enumerate(blocks):
        for ins in block.instructions:
            _require(ins.opcode not in _TERMINATORS, f"{ins.text} inside block {index}")
        for succ in block.successors:
            if succ == EXIT:
                continue
            _require(0 <= succ < len(blocks) and index in blocks[succ].predecessors, f"edge {index} to {succ}")
            if succ <= index:
                _require(loops.get(succ, -1) >= index, f"{index} goes back to {succ}, which is not a loop around it")
        for pred in block.predecessors:
            _require(index in blocks[pred].successors, f"edge {pred} to {index}")
        _require(index == 0 or bool(block.predecessors), f"block {index} cannot be reached")
        end = block.terminator
        count = len(block.successors)
        if end is None or block.is_barrier:
            _require(count == 1, f"block {index} has {count} successors")
        elif end.opcode != "brx":
            _require(count == (2 if end.guard is not None else 1), f"block {index} has {count} successors")
    for header, last in loops.items():
        _require(header <= last < len(blocks), f"loop {header} to {last}")


def check_constants(state: State) -> None:
    """A constant register has one definition, which all lanes execute."""
    definitions: dict[ir.Reg, list[ir.Instruction]] = {}
    for block in state.graph.blocks:
        for ins in block.all():
            for reg in ir.defined(ins):
                definitions.setdefault(reg, []).append(ins)
    for reg, source in state.constants.items():
        (ins,) = definitions[reg]
        _require(ins.guard is None and ins.operands[1] == source, f"{reg.name} by {ins.text}")
        _require(not ir.registers_of(source), f"{reg.name} of a register")


def check_liveness(state: State) -> None:
    """Every register has a number, and the sets solve their equations."""
    live, graph = state.live, state.graph
    for index, block in enumerate(graph.blocks):
        needed = 0
        for succ in block.successors:
            needed |= live.live_in[succ] if succ != EXIT else 0
        written = 0
        for ins in reversed([*block.all()]):
            for reg in ir.defined(ins):
                _require(reg in live.index, f"{reg.name} has no number")
                written |= 1 << live.index[reg]
                if ins.guard is None:
                    needed &= ~(1 << live.index[reg])
            for reg in ir.used(ins):
                needed |= 1 << live.index[reg]
        _require(live.live_in[index] == needed, f"what block {index} needs")
        _require(live.defs[index] == written, f"what block {index} writes")
    _require(live.registers == [*live.index], "the numbers of the registers")


def check_uniformity(state: State) -> None:
    """A register that is one scalar is written by whole warps alone, from operands that are scalars, too."""
    graph, analysis, live = state.graph, state.analysis, state.live
    _require(set(analysis.shapes) >= set(live.registers), "a register without a shape")
    for index, block in enumerate(graph.blocks):
        end = block.terminator
        for ins in block.all():
            for reg in ir.defined(ins):
                pattern = analysis.shapes[reg].pattern
                _require(reg.nbits > 1 or pattern.uniform or not pattern.known, f"predicate {reg.name} {pattern}")
                if not pattern.known:
                    continue
                for source in ir.used(ins):
                    known = analysis.shapes[source].pattern.known
                    fits = known or ins.opcode in _SAME_FOR_ALL
                    _require(fits, f"line {ins.line}: {ins.text}: {reg.name} of {source.name}")
                if index in analysis.divergent:
                    conflicting = analysis.conflicts >> live.index[reg] & 1
                    _require(not conflicting, f"{reg.name} is written for some lanes while others need it")
        if end is not None and end.guard is not None and not analysis.shapes[end.guard].uniform:
            followers = {succ for succ in block.successors if succ != EXIT}
            divergent = followers <= analysis.divergent | analysis.joins or len(followers) < 2
            _require(divergent, f"lanes part after block {index}, and nothing says so")


def check_deferred(state: State) -> None:
    """Checks that only arithmetic and moves define deferred registers."""
    for block in state.graph.blocks:
        for ins in block.all():
            for reg in ir.defined(ins):
                if reg in state.deferred:
                    _require(ins.opcode not in ("ld", "atom", "shfl", "cvt"), f"{reg.name} by {ins.text}")
                    _require(reg.nbits == 32, reg)
