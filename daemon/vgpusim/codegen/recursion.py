"""Recursive functions in a flat body: one copy of each, a return address and a stack for each thread.

A function in a cycle of the call graph cannot be inlined. Its body is emitted once, after the kernel's; a call saves
the registers that are live after it and that such functions may overwrite, moves the arguments, stores the return
address in a register, and branches; `ret` is a branch by that register. Threads of a warp may be at different depths:
they are lanes that wait at different blocks, like any others.

The inliner leaves calls as pseudo-instructions (PUSH, POP, COPY), because what has to be stored, and which variables
have become registers, is known only for the whole body."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from vgpusim.codegen import cfg, liveness
from vgpusim.ptx import ir
from vgpusim.ptx.error import NOT_SUPPORTED, PtxError
from vgpusim.ptx.module import PtxModule, align_up

PUSH, POP, COPY = "vgx.push", "vgx.pop", "vgx.copy"
STACK_NBYTES = 64 << 10  # of a thread
_STACK = ".stack"
_STACK_PADDING = 64  # lanes' stacks do not begin at the same line of the processor's cache
_LAUNCH_FAILED = 719
_POINTER, _DEPTH = ir.Reg(".stack.pointer", "u64"), ir.Reg(".stack.depth", "u32")
_FULL, _FLAG = ir.Reg(".stack.full", "pred"), ir.Reg(".stack.flag", "u32")
_WORDS = {1: "u32", 8: "b8", 16: "b16", 32: "b32", 64: "b64"}
Body = list[ir.Instruction | ir.Label]


@dataclass(slots=True)
class Callee:
    """A recursive function's own names in the flat body."""

    name: str
    sites: list[str] = field(default_factory=list)  # labels to return to, by the number in `index`
    frame_nbytes: int = 0
    offsets: dict[str, int] = field(default_factory=dict)  # of its variables in memory, from the frame's start

    @property
    def entry(self) -> str:
        return f"enter.{self.name}"

    @property
    def index(self) -> ir.Reg:
        return ir.Reg(f".return.{self.name}", "u32")


def recursive_functions(module: PtxModule, entry: str) -> frozenset[str]:
    """Names of the functions that a kernel may reach and that may reach themselves."""
    called = {
        function.name: {
            *(name for name in function.symbols if module.is_callable(name)),
            *(name for prototype in function.prototypes.values() for name in module.callable_by(prototype)),
        }
        for function in module.reachable(entry)
    }

    def reaches_itself(name: str) -> bool:
        seen: set[str] = set()
        pending = list(called[name])
        while pending:
            other = pending.pop()
            if other == name:
                return True
            if other not in seen:
                seen.add(other)
                pending += called.get(other, ())
        return False

    return frozenset(name for name in called if reaches_itself(name))


def start(body: Body) -> None:
    """Instructions at the start of a kernel that calls recursive functions."""
    body.append(ir.Instruction("mov", ("u64",), (_POINTER, ir.Symbol(_STACK)), 0))
    body.append(ir.Instruction("mov", ("u32",), (_DEPTH, ir.Imm(0)), 0))


def stack_variable() -> ir.LocalVariable:
    return ir.LocalVariable(_STACK, "local", STACK_NBYTES + _STACK_PADDING, 16)


def leave(callee: Callee, ins: ir.Instruction) -> ir.Instruction:
    """`ret` inside a recursive function."""
    return replace(ins, opcode="brx", modifiers=("idx",), operands=(callee.index, ir.Name(f"sites.{callee.name}")))


def call(
    callee: Callee, owner: Callee | None, line: int, arguments: Iterable[ir.Instruction],
    results: Iterable[ir.Instruction], site: str,
) -> Body:  # fmt: skip
    """The pseudo-instructions of a call; `owner` is the recursive function that it stands in."""
    names = (ir.Name(site), ir.Name(owner.name if owner else ""), ir.Name(callee.name))
    number = ir.Imm(len(callee.sites))
    callee.sites.append(site)
    return [
        ir.Instruction(PUSH, ("save",), names, line),
        *arguments,
        ir.Instruction("mov", ("u32",), (callee.index, number), line),
        ir.Instruction(PUSH, (), names, line),
        ir.Instruction("bra", (), (ir.Name(callee.entry),), line),
        ir.Label(site, line),
        ir.Instruction(POP, (), names, line),
        *results,
        ir.Instruction(POP, ("restore",), names, line),
    ]


class Expander:
    """Turns the pseudo-instructions into ordinary ones, once parameters that can be registers are."""

    def __init__(
        self, kernel: str, callees: Mapping[str, Callee], owners: Mapping[str, str],
        places: Mapping[str, Mapping[int, int]], variables: Mapping[str, ir.LocalVariable],
        build: Callable[[Body], cfg.Graph],
    ) -> None:  # fmt: skip
        """`owners`: the recursive functions whose bodies variables belong to; `places`: the registers that variables
        have become; `build`: the control flow of a body."""
        self.kernel, self.callees, self.places, self.variables, self.build = kernel, callees, places, variables, build
        self.owners = {name: callees[owner] for name, owner in owners.items()}
        self.count = 0

    def run(self, body: Body) -> Body:
        for name, callee in self.owners.items():
            if name not in self.places:
                variable = self.variables[name]
                offset = align_up(callee.frame_nbytes, variable.align)
                callee.offsets[name] = offset
                callee.frame_nbytes = offset + variable.nbytes
        copied = [moved for item in body for moved in self._copies(item)]
        entries = {callee.entry for callee in self.callees.values()}
        first = next(i for i, item in enumerate(copied) if isinstance(item, ir.Label) and item.name in entries)
        saved = self._saved(copied, first)
        slots = self._lay_out(copied, saved)
        result: Body = []
        for item in copied:
            if isinstance(item, ir.Instruction) and item.opcode in (PUSH, POP):
                result += self._expand(item, slots)
            else:
                result += self._in_frame(item)
        return result

    # ---- arguments and results

    def _copies(self, item: ir.Instruction | ir.Label) -> Body:
        """Move a variable's registers, or its bytes."""
        if isinstance(item, ir.Label) or item.opcode != COPY:
            return [item]
        target, source, size = item.operands
        assert isinstance(target, ir.Symbol)
        assert isinstance(source, ir.Symbol)
        assert isinstance(size, ir.Imm)
        known = self.places.get(target.name)
        moves: Body = []
        if known is not None:
            for offset, nbytes in sorted(known.items()):
                kind = f"b{nbytes * 8}"
                pair = (ir.Reg(f"{target.name}+{offset}", kind), ir.Reg(f"{source.name}+{offset}", kind))
                moves.append(ir.Instruction("mov", (kind,), pair, item.line))
            return moves
        inward, owner = item.modifiers
        offset = 0
        while offset < size.value:
            nbytes = next(n for n in (8, 4, 2, 1) if offset % n == 0 and offset + n <= size.value)
            kind = f"b{nbytes * 8}"
            temporary = ir.Reg(f".copy.{nbytes}", kind)
            # The callee's frame begins where the caller's ends, which is not known yet: _offset adds its size.
            read, written = source.name, target.name
            if inward == "to":
                written += f"|{owner}"
            else:
                read += f"|{owner}"
            load = (temporary, ir.Address(ir.Symbol(read, source.offset + offset)))
            store = (ir.Address(ir.Symbol(written, target.offset + offset)), temporary)
            moves.append(ir.Instruction("ld", ("local", kind), load, item.line))
            moves.append(ir.Instruction("st", ("local", kind), store, item.line))
            offset += nbytes
        return moves

    # ---- what a call keeps

    def _saved(self, body: Body, boundary: int) -> dict[str, list[ir.Reg]]:
        """For each call inside a recursive function: the registers to store, by its label."""
        clobbered = {
            reg for item in body[boundary:] if isinstance(item, ir.Instruction) for reg in ir.defined(item)
        } - {_POINTER, _DEPTH, _FULL, _FLAG}
        found: dict[str, list[ir.Reg]] = {}
        while True:  # storing a register uses it, so an earlier call may have to store it, too
            graph = self.build([_storing(item, found) for item in body])
            live = liveness.compute(graph)
            before = found
            found = {}
            for index, block in enumerate(graph.blocks):
                first = next(iter(block.instructions), None)
                if first is None or first.opcode != POP or first.modifiers:
                    continue
                site, owner = _names(first)[:2]
                if owner:
                    results = {reg for ins in _until_restored(block) for reg in ir.used(ins)}
                    kept = (set(live.names(live.live_in[index])) & clobbered) - results
                    found[site] = sorted(kept, key=lambda reg: (-reg.nbits, reg.name))
            if found == before:
                return found

    def _lay_out(self, body: Body, saved: Mapping[str, list[ir.Reg]]) -> dict[str, list[tuple[ir.Reg, int]]]:
        """A place in the caller's frame for each register."""
        slots: dict[str, list[tuple[ir.Reg, int]]] = {}
        ends = {name: align_up(callee.frame_nbytes, 8) for name, callee in self.callees.items()}
        for item in body:
            if isinstance(item, ir.Label) or item.opcode != PUSH or not item.modifiers:
                continue
            site, owner, _ = _names(item)
            if not owner:
                continue
            offset = align_up(self.callees[owner].frame_nbytes, 8)
            slots[site] = []
            for reg in saved.get(site, ()):
                slots[site].append((reg, offset))
                offset += max(4 if reg.nbits == 1 else 1, reg.nbits // 8)
            ends[owner] = max(ends[owner], offset)
        for name, callee in self.callees.items():
            callee.frame_nbytes = align_up(ends[name], 16)
            if callee.frame_nbytes > STACK_NBYTES:
                raise PtxError(f"{self.kernel}: {name} needs {callee.frame_nbytes} bytes of stack", NOT_SUPPORTED)
        return slots

    # ---- ordinary instructions

    def _expand(self, item: ir.Instruction, slots: Mapping[str, list[tuple[ir.Reg, int]]]) -> Body:
        site, owner, callee = _names(item)
        line = item.line
        if item.modifiers:
            moves: Body = []
            for reg, offset in slots.get(site, ()):
                moves += _store(reg, offset, line) if item.opcode == PUSH else _restore(reg, offset, line)
            return moves
        size = self.callees[owner].frame_nbytes if owner else 0
        if item.opcode == POP:
            return [
                ir.Instruction("sub", ("u64",), (_POINTER, _POINTER, ir.Imm(size)), line),
                ir.Instruction("sub", ("u32",), (_DEPTH, _DEPTH, ir.Imm(size)), line),
            ] if size else []  # fmt: skip
        self.count += 1
        fits = f"fits.{self.count}"
        room = STACK_NBYTES - self.callees[callee].frame_nbytes
        what = f"stack overflow: {callee} recurses deeper than {STACK_NBYTES} bytes hold"
        return [
            ir.Instruction("add", ("u64",), (_POINTER, _POINTER, ir.Imm(size)), line),
            ir.Instruction("add", ("u32",), (_DEPTH, _DEPTH, ir.Imm(size)), line),
            ir.Instruction("setp", ("le", "u32"), (_FULL, _DEPTH, ir.Imm(room)), line),
            ir.Instruction("bra", (), (ir.Name(fits),), line, _FULL),
            ir.Instruction("trap", (), (ir.Imm(_LAUNCH_FAILED), ir.Name(what)), line),
            ir.Instruction("exit", (), (), line),
            ir.Label(fits, line),
        ]

    def _in_frame(self, item: ir.Instruction | ir.Label) -> Body:
        """Replace variables that lie in a frame by offsets from the stack pointer."""
        if isinstance(item, ir.Label):
            return [item]
        before: Body = []
        operands: list[ir.Operand] = []
        for operand in item.operands:
            match operand:
                case ir.Address(base=ir.Symbol() as symbol):
                    offset = self._offset(symbol)
                    operands.append(operand if offset is None else ir.Address(_POINTER, offset + operand.offset))
                case ir.Symbol():
                    offset = self._offset(operand)
                    if offset is None:
                        operands.append(operand)
                    else:
                        self.count += 1
                        place = ir.Reg(f".place.{self.count}", "u64")
                        before.append(ir.Instruction("add", ("u64",), (place, _POINTER, ir.Imm(offset)), item.line))
                        operands.append(place)
                case _:
                    operands.append(operand)
        return [*before, replace(item, operands=tuple(operands))]

    def _offset(self, symbol: ir.Symbol) -> int | None:
        """Offset from the stack pointer, in bytes."""
        name, _, caller = symbol.name.partition("|")
        owner = self.owners.get(name)
        if owner is None or name in self.places:
            return None
        return owner.offsets[name] + symbol.offset + (self.callees[caller].frame_nbytes if caller else 0)


def _storing(item: ir.Instruction | ir.Label, saved: Mapping[str, list[ir.Reg]]) -> ir.Instruction | ir.Label:
    if isinstance(item, ir.Label) or item.opcode != PUSH or not item.modifiers:
        return item
    return replace(item, operands=(*item.operands, ir.Vector(tuple(saved.get(_names(item)[0], ())))))


def _names(item: ir.Instruction) -> tuple[str, str, str]:
    site, owner, callee = (operand.name for operand in item.operands if isinstance(operand, ir.Name))
    return site, owner, callee


def _until_restored(block: cfg.Block) -> Iterable[ir.Instruction]:
    for ins in block.instructions:
        if ins.opcode == POP and ins.modifiers:
            return
        yield ins


def _store(reg: ir.Reg, offset: int, line: int) -> Body:
    word = _WORDS.get(reg.nbits)
    if word is None:
        raise PtxError(
            f"line {line}: {reg.nbits}-bit registers are not supported in recursive functions", NOT_SUPPORTED
        )
    place = ir.Address(_POINTER, offset)
    if reg.nbits > 1:
        return [ir.Instruction("st", ("local", word), (place, reg), line)]
    return [
        ir.Instruction("selp", ("u32",), (_FLAG, ir.Imm(1), ir.Imm(0), reg), line),
        ir.Instruction("st", ("local", "u32"), (place, _FLAG), line),
    ]


def _restore(reg: ir.Reg, offset: int, line: int) -> Body:
    word = _WORDS[reg.nbits]
    place = ir.Address(_POINTER, offset)
    if reg.nbits > 1:
        return [ir.Instruction("ld", ("local", word), (reg, place), line)]
    return [
        ir.Instruction("ld", ("local", "u32"), (_FLAG, place), line),
        ir.Instruction("setp", ("ne", "u32"), (reg, _FLAG, ir.Imm(0)), line),
    ]
