"""Which values come from shared memory that nothing has written, for the sanitizer: a pass that gives each register
that may hold such a value a predicate of its own, and adds instructions that compute it beside the kernel's own.

Kernels often read what nobody has written and do not use it, so a read is reported only where its value decides
something: a branch, an address, what is stored in global memory. What is stored in shared memory stays unset. Values
are followed through arithmetic, selections and shuffles of lanes; matrix instructions, votes and reductions of a warp,
atomic results and local memory lose track of them.

The added instructions, `unset begin` and so on, which no PTX can contain, are emitted by emit_unset.py:
- begin: no bytes are unset, before a load; load: a register's predicate after it
- of: the predicates of the sources, or-ed; pick: those of selp
- use: report lanes whose value is unset, and the load. Behind the predicates come, each with its line, the predicates
  of loads on which the value surely depends; behind 0 the lines of all that it may come from
- store: say which bytes the next store's lanes have unset"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace

from vgpusim.codegen.program import Program
from vgpusim.ptx import ir

_ELSEWHERE = ("global", "const", "param", "local")
_LOSES_TRACK = (
    *("atom", "mma", "wmma", "wgmma", "ldmatrix", "movmatrix", "vote", "match", "redux", "call", "cp", "mbarrier"),
    *("tex", "tld4", "suld", "bar", "barrier", "activemask", "elect", "ld", "multimem"),
)
_LOADS_MAX = 16  # of a use, that are told apart
_ENDS = ("bra", "brx", "ret", "exit", "trap")
_Item = ir.Instruction | ir.Label


def _spaces(ins: ir.Instruction) -> set[str]:
    return {modifier.split("::")[0] for modifier in ins.modifiers}


def is_source(ins: ir.Instruction) -> bool:
    """Whether an instruction loads memory that may be shared, by a register's or a variable's address."""
    return ins.opcode == "ld" and not _spaces(ins) & set(_ELSEWHERE)


def _items(operand: ir.Operand) -> tuple[ir.Operand, ...]:
    return tuple(operand.items) if isinstance(operand, ir.Vector) else (operand,)


def _values(ins: ir.Instruction) -> list[ir.Reg]:
    """Registers whose values an instruction reads, without its guard."""
    return ir.used(replace(ins, guard=None))


def _may_be_unset(body: list[_Item]) -> set[ir.Reg]:
    found: set[ir.Reg] = set()
    instructions = [item for item in body if isinstance(item, ir.Instruction)]
    changed = True
    while changed:
        before = len(found)
        for ins in instructions:
            if is_source(ins) or (ins.opcode not in _LOSES_TRACK and not found.isdisjoint(ir.used(ins))):
                found.update(ir.defined(ins))
        changed = len(found) != before
    return found


@dataclass
class _Origins:
    """From which loads registers' values come, by the lines of these: all that one may come from, and those that it
    surely depends on, as each register on the way is set by one instruction."""

    may: dict[ir.Reg, set[int]] = field(default_factory=lambda: defaultdict(set))
    sure: dict[ir.Reg, set[int]] = field(default_factory=lambda: defaultdict(set))
    loaded: dict[int, list[ir.Reg]] = field(default_factory=dict)  # by a line whose registers nothing else sets


def _origins(body: list[_Item], unset: set[ir.Reg]) -> _Origins:
    found = _Origins()
    instructions = [i for i in body if isinstance(i, ir.Instruction) and not unset.isdisjoint(ir.defined(i))]
    setters = Counter(reg for ins in instructions for reg in ir.defined(ins))
    lines = Counter(ins.line for ins in instructions if is_source(ins))
    changed = True
    while changed:
        changed = False
        for ins in instructions:
            source = is_source(ins)
            if not source and ins.opcode in _LOSES_TRACK:
                continue
            targets = [reg for reg in ir.defined(ins) if reg in unset]
            only = ins.guard is None and all(setters[reg] == 1 for reg in targets)
            if source and only and lines[ins.line] == 1:
                found.loaded[ins.line] = targets
            values = {reg for reg in ir.used(ins) if reg in unset}
            may = {ins.line} if source else {line for reg in values for line in found.may[reg]}
            sure = may if source else {line for reg in values for line in found.sure[reg]}
            for reg in targets:
                before = len(found.may[reg]) + len(found.sure[reg])
                found.may[reg] |= may
                if only and ins.opcode not in ("selp", "shfl"):
                    found.sure[reg] |= sure & found.loaded.keys()
                changed = changed or len(found.may[reg]) + len(found.sure[reg]) != before
    return found


class _Tracker:
    def __init__(self, unset: set[ir.Reg], origins: _Origins) -> None:
        self.unset = unset
        self.origins = origins
        self.body: list[_Item] = []
        self.count = 0

    def of(self, reg: ir.Reg) -> ir.Reg:
        return ir.Reg(f"{reg.name} unset", "pred")

    def known(self, regs: list[ir.Reg]) -> list[ir.Operand]:
        """The predicates of those that may be unset."""
        return [self.of(reg) for reg in dict.fromkeys(regs) if reg in self.unset]

    def add(self, ins: ir.Instruction, what: str, *operands: ir.Operand, guarded: bool = True) -> None:
        guard = (ins.guard, ins.guard_negated) if guarded else (None, False)
        self.body.append(ir.Instruction(f"unset {what}", (), operands, ins.line, *guard, ins.source))

    def use(self, ins: ir.Instruction, regs: list[ir.Reg], *, guarded: bool = True) -> None:
        known = self.known(regs)
        if not known:
            return
        used = [reg for reg in regs if reg in self.unset]
        sure = {line for reg in used for line in self.origins.sure[reg]}
        may = {line for reg in used for line in self.origins.may[reg]}
        for line in sorted(sure) if len(sure) <= _LOADS_MAX else ():
            known += [ir.Imm(line), *self.known(self.origins.loaded[line])]
        known += [ir.Imm(0), *(ir.Imm(line) for line in (sorted(may) if len(may) <= _LOADS_MAX else ()))]
        self.add(ins, "use", *known, guarded=guarded)

    def before(self, ins: ir.Instruction) -> None:
        guard = [ins.guard] if ins.guard is not None else []
        addresses = [reg for o in ins.operands if isinstance(o, ir.Address) for reg in ir.registers_of(o)]
        if ins.opcode in ("st", "red", "atom", *_ENDS):
            self.use(ins, guard, guarded=False)
        if ins.opcode in ("ld", "st"):
            self.use(ins, addresses)
        if ins.opcode in ("atom", "red", "brx") or (ins.opcode == "st" and "global" in _spaces(ins)):
            self.use(ins, _values(ins))
        elif ins.opcode == "st" and not _spaces(ins) & set(_ELSEWHERE):
            self._store(ins)
        if is_source(ins):
            self.add(ins, "begin", guarded=False)

    def _store(self, ins: ir.Instruction) -> None:
        size = ir.type_nbytes(ins.type)
        listed: list[ir.Operand] = []
        for number, item in enumerate(_items(ins.operands[1])):
            if isinstance(item, ir.Reg) and item in self.unset:
                listed += [ir.Imm(((1 << size) - 1) << (number * size)), self.of(item)]
        if listed:
            self.add(ins, "store", *listed)

    def after(self, ins: ir.Instruction) -> None:
        targets = [reg for reg in ir.defined(ins) if reg in self.unset]
        if not targets:
            return
        if is_source(ins):
            size = ir.type_nbytes(ins.type)
            for number, item in enumerate(_items(ins.operands[0])):
                if isinstance(item, ir.Reg):
                    self.add(ins, "load", self.of(item), ir.Imm(((1 << size) - 1) << (number * size)))
            return
        if ins.opcode in _LOSES_TRACK:
            for reg in targets:
                self.add(ins, "of", self.of(reg))
        elif ins.opcode == "selp" and not isinstance(ins.operands[0], ir.Vector):
            picked: list[ir.Operand] = [
                self.of(o) if isinstance(o, ir.Reg) and o in self.unset else ir.Imm(0) for o in ins.operands[1:4]
            ]
            self.add(ins, "pick", self.of(targets[0]), *picked[:2], ins.operands[3], picked[2])
        elif ins.opcode == "shfl":
            self._shuffle(ins, targets)
        else:
            sources = self.known(_values(ins))
            for reg in targets:
                self.add(ins, "of", self.of(reg), *sources)
        if ins.guard is not None and ins.guard in self.unset:
            for reg in targets:
                self.add(ins, "of", self.of(reg), self.of(reg), self.of(ins.guard), guarded=False)

    def _shuffle(self, ins: ir.Instruction, targets: list[ir.Reg]) -> None:
        """Shuffle the predicate, too, as a number."""
        target = ir.registers_of(ins.operands[0])[0]
        source = ins.operands[1]
        for reg in targets:
            if reg != target or not isinstance(source, ir.Reg) or source not in self.unset:
                self.add(ins, "of", self.of(reg))
                continue
            self.count += 1
            one, other = (ir.Reg(f"unset {self.count} {part}", "b32") for part in "ab")
            guard = (ins.guard, ins.guard_negated)
            place = (ins.line, *guard, ins.source)
            self.body += [
                ir.Instruction("selp", ("b32",), (one, ir.Imm(1), ir.Imm(0), self.of(source)), *place),
                ir.Instruction("shfl", ins.modifiers, (other, one, *ins.operands[2:]), *place),
                ir.Instruction("setp", ("ne", "b32"), (self.of(reg), other, ir.Imm(0)), *place),
            ]


def track(program: Program) -> None:
    """Add the instructions."""
    unset = _may_be_unset(program.body)
    if not unset:
        return
    tracker = _Tracker(unset, _origins(program.body, unset))
    for item in program.body:
        if isinstance(item, ir.Label):
            tracker.body.append(item)
            continue
        tracker.before(item)
        tracker.body.append(item)
        tracker.after(item)
    program.body = tracker.body
