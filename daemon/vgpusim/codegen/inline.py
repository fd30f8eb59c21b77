"""One kernel as a single flat body: calls of .func inlined, call parameters turned into registers where they can be.

Inlining keeps divergence, barriers and warp operations inside functions the same problem as in kernels. Functions that
recurse have one body each instead (recursion.py). A call through a pointer becomes a chain of comparisons with a call
of each function that it may reach. Where these are too many, it holds those that launches have asked for, and a launch
that comes to another one begins again with it (emit_absent.py)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from vgpusim.codegen import cfg, recursion
from vgpusim.codegen.program import Program
from vgpusim.ptx import device_runtime, ir
from vgpusim.ptx.error import NOT_SUPPORTED, PtxError, UnsupportedInstruction
from vgpusim.ptx.module import PtxModule, align_up, reserved_shared, shared_layout
from vgpusim.ptx.undefined import is_drivers

# Served by the driver, though a program may have linked a body (libcudadevrt's calls it): number of arguments.
BUILTINS = {
    "vprintf": 2,
    "__assertfail": 5,
    "malloc": 1,
    "free": 1,
    "cudaGraphSetConditional": 2,
    device_runtime.ASK: device_runtime.ARGUMENTS,
}
_LAUNCH_FAILED = 719
_MAX_INSTRUCTIONS = 400_000  # after inlining


def flatten(module: PtxModule, name: str) -> Program:
    """Inline every call of entry `name` and lay its memory out.

    Raises:
        UnsupportedInstruction: calls of functions without a body and their addresses.
        PtxError: NOT_SUPPORTED for what is too large.
    """
    entry = module.function(name)
    functions = module.reachable(name)
    shared, shared_nbytes = shared_layout(module, functions)
    params, offset = {}, 0
    for param in entry.params:
        offset = align_up(offset, param.align)
        params[param.name] = offset
        offset += param.nbytes
    program = Program(name, [], params, offset, shared, shared_nbytes, reserved_shared(functions))
    inliner = _Inliner(module, program, recursion.recursive_functions(module, name))
    inliner.run(entry)
    places = _promote_params(program, inliner.variables)
    if inliner.callees:
        _expand_recursion(program, inliner, places)
    for variable in inliner.variables.values():
        if variable.space == "local":
            program.local_nbytes = align_up(program.local_nbytes, variable.align)
            program.locals[variable.name] = program.local_nbytes
            program.local_nbytes += variable.nbytes
    mentioned = {
        s for ins in program.body if isinstance(ins, ir.Instruction) for o in ins.operands for s in _symbols(o)
    }
    program.symbols = sorted(s for s in mentioned if module.is_variable(s))
    return program


def _expand_recursion(program: Program, inliner: _Inliner, places: dict[str, dict[int, int]]) -> None:
    for callee in inliner.callees.values():
        program.branch_targets[f"sites.{callee.name}"] = tuple(callee.sites)

    def build(body: recursion.Body) -> cfg.Graph:
        return cfg.build(replace(program, body=body))

    variables = inliner.variables
    expander = recursion.Expander(program.name, inliner.callees, inliner.owners, places, variables, build)
    program.body = expander.run(program.body)
    for name in inliner.owners:
        del variables[name]
    stack = recursion.stack_variable()
    variables[stack.name] = stack


def _symbols(operand: ir.Operand) -> list[str]:
    match operand:
        case ir.Symbol():
            return [operand.name]
        case ir.Address():
            return _symbols(operand.base)
        case ir.Vector():
            return [name for item in operand.items for name in _symbols(item)]
    return []


def _map_operand(
    operand: ir.Operand, reg: Callable[[ir.Reg], ir.Reg], symbol: Callable[[ir.Symbol], ir.Scalar]
) -> ir.Operand:
    match operand:
        case ir.Reg():
            return reg(operand)
        case ir.Symbol():
            return symbol(operand)
        case ir.Address():
            base = _map_operand(operand.base, reg, symbol)
            assert isinstance(base, (ir.Reg, ir.Imm, ir.Symbol))
            return ir.Address(base, operand.offset)
        case ir.Not():
            return ir.Not(reg(operand.operand))
        case ir.Vector():
            return ir.Vector(tuple(_map_operand(item, reg, symbol) for item in operand.items))
        case ir.Pair():
            first = reg(operand.first) if operand.first else None
            return ir.Pair(first, reg(operand.second) if operand.second else None)
    return operand


class _Inliner:
    def __init__(self, module: PtxModule, program: Program, recursive: frozenset[str]) -> None:
        self.module, self.program, self.recursive = module, program, recursive
        self.variables: dict[str, ir.LocalVariable] = {}
        self.callees: dict[str, recursion.Callee] = {}  # recursive functions that are called
        self.owners: dict[str, str] = {}  # variables in the bodies of recursive functions
        self.owner: recursion.Callee | None = None  # the recursive function whose body is being appended
        self.count = 0

    def run(self, entry: ir.Function) -> None:
        """The kernel, then the recursive functions."""
        body = self.program.body
        if self.recursive:
            recursion.start(body)
        self.expand(entry, "", {}, [], None)
        done: set[str] = set()
        while pending := [name for name in self.callees if name not in done]:
            if not done:
                body.append(ir.Instruction("exit", (), (), 0))
            done.add(pending[0])
            self.owner = self.callees[pending[0]]
            body.append(ir.Label(self.owner.entry, 0))
            self.expand(self.module.function(pending[0]), f"@{pending[0]}", {}, [], None)
            body.append(recursion.leave(self.owner, ir.Instruction("ret", (), (), 0)))

    def expand(
        self, function: ir.Function, suffix: str, arguments: dict[str, ir.Symbol], callers: list[str], end: str | None
    ) -> None:
        """Append the body of `function`. `arguments` maps its parameters to the caller's variables; `ret` jumps to
        `end`."""
        assert function.name not in callers, function.name
        callers = [*callers, function.name]
        body, prototypes = self.program.body, function.prototypes

        def rename_reg(reg: ir.Reg) -> ir.Reg:
            return ir.Reg(reg.name + suffix, reg.type) if suffix else reg

        def rename_symbol(symbol: ir.Symbol) -> ir.Scalar:
            if symbol.name in arguments:
                target = arguments[symbol.name]
                return ir.Symbol(target.name, target.offset + symbol.offset)
            variable = function.variables.get(symbol.name)
            if f"{symbol.name}{suffix}" in self.owners and suffix == f"@{function.name}":
                return ir.Symbol(symbol.name + suffix, symbol.offset)
            if variable is None:
                return self.module.address_of(symbol)
            if variable.space == "shared":
                return ir.Symbol(f"{function.name}:{variable.name}", symbol.offset)
            return ir.Symbol(variable.name + suffix, symbol.offset)

        for variable in function.variables.values():
            if variable.space != "shared":
                self.variables[variable.name + suffix] = replace(variable, name=variable.name + suffix)
                if self.owner is not None:
                    self.owners[variable.name + suffix] = self.owner.name
        if suffix == f"@{function.name}":
            for param in (*function.params, *function.returns):
                if param.register is None:
                    name = param.name + suffix
                    self.variables[name] = ir.LocalVariable(name, "param", param.nbytes, param.align)
                    self.owners[name] = function.name
        for name, targets in function.branch_targets.items():
            self.program.branch_targets[name + suffix] = tuple(t + suffix for t in targets)
        for item in function.body:
            if len(body) > _MAX_INSTRUCTIONS:
                raise PtxError(f"{self.program.name} is too large after inlining", NOT_SUPPORTED)
            if isinstance(item, ir.Label):
                body.append(ir.Label(item.name + suffix, item.line))
                continue
            operands = tuple(_map_operand(o, rename_reg, rename_symbol) for o in item.operands)
            if item.opcode in ("bra", "brx"):
                last = operands[-1]
                assert isinstance(last, ir.Name)
                operands = (*operands[:-1], ir.Name(last.name + suffix))
            modifiers = tuple("param" if m.startswith("param::") else m for m in item.modifiers)
            guard = rename_reg(item.guard) if item.guard else None
            ins = replace(item, operands=operands, modifiers=modifiers, guard=guard)
            if ins.opcode == "ret" and end is not None:
                body.append(replace(ins, opcode="bra", modifiers=(), operands=(ir.Name(end),)))
            elif ins.opcode == "ret" and self.owner is not None:
                body.append(recursion.leave(self.owner, ins))
            elif ins.opcode == "call":
                self._guarded(ins, lambda plain: self._call(plain, callers, prototypes))
            elif ins.opcode == "barrier" and ins.has("cluster"):
                if ins.has("wait"):
                    wait = replace(ins, modifiers=("sync",), operands=(ir.Imm(ir.CLUSTER_BARRIER),))
                    self._guarded(wait, body.append)
                elif not ins.has("arrive"):
                    raise UnsupportedInstruction(self.program.name, ins.text, ins.line)
            elif ins.opcode in ("bar", "barrier") and "warp" not in ins.modifiers:
                self._guarded(ins, body.append)
            else:
                body.append(ins)

    def _label(self, hint: str) -> str:
        self.count += 1
        return f"{hint}.{self.count}"

    def _guarded(self, ins: ir.Instruction, emit: Callable[[ir.Instruction], None]) -> None:
        """Replace the guard of an instruction by a branch around it."""
        if ins.guard is None:
            emit(ins)
            return
        skip = self._label("skip")
        self.program.body.append(
            ir.Instruction("bra", (), (ir.Name(skip),), ins.line, ins.guard, not ins.guard_negated)
        )
        emit(replace(ins, guard=None, guard_negated=False))
        self.program.body.append(ir.Label(skip, ins.line))

    def _call(self, ins: ir.Instruction, callers: list[str], prototypes: dict[str, ir.Prototype]) -> None:
        results, target, arguments = ins.operands[:3]
        assert isinstance(results, ir.Vector)
        assert isinstance(arguments, ir.Vector)
        if isinstance(target, ir.Reg):
            self._call_through(target, ins, callers, prototypes)
            return
        assert isinstance(target, ir.Name)
        if target.name == "cudaGraphSetConditional" or not self.module.defines(target.name):
            if BUILTINS.get(target.name) != len(arguments.items):
                if not is_drivers(target.name):
                    raise PtxError(f"line {ins.line}: Unresolved extern function '{target.name}'")
                raise UnsupportedInstruction(self.program.name, ins.text, ins.line, f"external function {target.name}")
            self.program.body.append(ins)
            if target.name == "__assertfail":  # it ends the thread, though its PTX declaration lets it return
                self.program.body.append(ir.Instruction("exit", (), (), ins.line))
            return
        callee = self.module.function(target.name)
        if len(callee.params) != len(arguments.items) or len(callee.returns) != len(results.items):
            raise PtxError(f"line {ins.line}: call of {target.name} does not match its declaration")
        if target.name in self.recursive:
            self._call_recursive(ins, callee, results, arguments)
            return
        self.count += 1
        suffix = f"@{self.count}"
        bound: dict[str, ir.Symbol] = {}
        body = self.program.body
        for param, argument in zip(callee.params, arguments.items, strict=True):
            if isinstance(argument, ir.Symbol) and param.register is None:
                bound[param.name] = argument
            elif param.register is not None:
                reg = ir.Reg(param.register.name + suffix, param.register.type)
                body.append(ir.Instruction("mov", (param.type,), (reg, argument), ins.line))
            else:
                raise UnsupportedInstruction(self.program.name, ins.text, ins.line, "argument is not a .param variable")
        for param, result in zip(callee.returns, results.items, strict=True):
            if isinstance(result, ir.Symbol) and param.register is None:
                bound[param.name] = result
            elif param.register is None:
                raise UnsupportedInstruction(self.program.name, ins.text, ins.line, "result is not a .param variable")
        end = self._label("return")
        self.expand(callee, suffix, bound, callers, end)
        body.append(ir.Label(end, ins.line))
        for param, result in zip(callee.returns, results.items, strict=True):
            if param.register is not None:
                reg = ir.Reg(param.register.name + suffix, param.register.type)
                body.append(ir.Instruction("mov", (param.type,), (result, reg), ins.line))

    def _call_recursive(
        self, ins: ir.Instruction, function: ir.Function, results: ir.Vector, arguments: ir.Vector
    ) -> None:
        callee = self.callees.setdefault(function.name, recursion.Callee(function.name))
        owner, suffix = self.owner.name if self.owner else "", f"@{function.name}"

        def moves(params: Sequence[ir.Parameter], operands: Sequence[ir.Operand], inward: str) -> list[ir.Instruction]:
            found = []
            for param, operand in zip(params, operands, strict=True):
                if param.register is not None:
                    reg = ir.Reg(param.register.name + suffix, param.register.type)
                    pair = (reg, operand) if inward == "to" else (operand, reg)
                    found.append(ir.Instruction("mov", (param.type,), pair, ins.line))
                    continue
                if not isinstance(operand, ir.Symbol):
                    reason = "an argument or result is not a .param variable"
                    raise UnsupportedInstruction(self.program.name, ins.text, ins.line, reason)
                own = ir.Symbol(param.name + suffix)
                both = (own, operand) if inward == "to" else (operand, own)
                found.append(ir.Instruction(recursion.COPY, (inward, owner), (*both, ir.Imm(param.nbytes)), ins.line))
            return found

        given = moves(function.params, arguments.items, "to")
        taken = moves(function.returns, results.items, "from")
        site = self._label("site")
        self.program.body += recursion.call(callee, self.owner, ins.line, given, taken, site)

    def _call_through(
        self, pointer: ir.Reg, ins: ir.Instruction, callers: list[str], prototypes: dict[str, ir.Prototype]
    ) -> None:
        """Lanes whose pointer is the address of a function branch to their own copy of it, one function at a time. A
        pointer to none of these functions fails the launch at the call."""
        results, _, arguments, prototype = ins.operands
        assert isinstance(prototype, ir.Name)
        if prototype.name not in prototypes:
            raise PtxError(f"line {ins.line}: undefined prototype {prototype.name}")
        body, end = self.program.body, self._label("called")
        for name in self.module.callable_by(prototypes[prototype.name]):
            other = self._label("other")
            differs = ir.Reg(other, "pred")
            address = self.module.address_of(ir.Symbol(name))
            body.append(ir.Instruction("setp", ("ne", "u64"), (differs, pointer, address), ins.line))
            body.append(ir.Instruction("bra", (), (ir.Name(other),), ins.line, differs))
            self._call(replace(ins, operands=(results, ir.Name(name), arguments)), callers, prototypes)
            body.append(ir.Instruction("bra", (), (ir.Name(end),), ins.line))
            body.append(ir.Label(other, ins.line))
        if self.module.follows(prototypes[prototype.name]):
            self._fail(ins.line, _LAUNCH_FAILED, "call through a pointer that is not a function of this form")
        else:
            self.program.begins_again = True
            what = "call through a pointer, of more functions than a kernel can hold,"
            body.append(ir.Instruction("trap", (), (ir.Imm(NOT_SUPPORTED), ir.Name(what), pointer), ins.line))
            assert isinstance(results, ir.Vector)
            if results.items:  # the launch cannot go on without them
                body.append(ir.Instruction("exit", (), (), ins.line))
        body.append(ir.Label(end, ins.line))

    def _fail(self, line: int, result: int, message: str) -> None:
        self.program.body.append(ir.Instruction("trap", (), (ir.Imm(result), ir.Name(message)), line))


def _promote_params(program: Program, variables: dict[str, ir.LocalVariable]) -> dict[str, dict[int, int]]:
    """Turn .param variables that are only read and written at fixed, non-overlapping places into registers; the others
    become local memory. Returns the places of the former, offset and size."""
    places: dict[str, dict[int, int]] = {n: {} for n, v in variables.items() if v.space == "param"}  # offset: nbytes
    for ins in program.body:
        if isinstance(ins, ir.Label):
            continue
        for index, operand in enumerate(ins.operands):
            for name in _symbols(operand):
                if name not in places or ins.opcode in ("call", recursion.COPY):
                    continue
                if not (ins.opcode in ("ld", "st") and ins.has("param") and isinstance(operand, ir.Address)):
                    places.pop(name)
                    continue
                base = operand.base
                assert isinstance(base, ir.Symbol)
                nbytes = ir.type_nbytes(ins.type)
                for element in range(len(_elements(ins, 1 - index))):
                    if places[name].setdefault(base.offset + element * nbytes, nbytes) != nbytes:
                        places.pop(name)
                        break
    for name in [name for name, found in places.items() if _overlap(found)]:
        places.pop(name)
    _agree_on_copies(program, places)
    for name, variable in variables.items():
        if variable.space == "param" and name not in places:
            variable.space = "local"
    body: list[ir.Instruction | ir.Label] = []
    for ins in program.body:
        body += _rewrite(program, ins, places, variables)
    program.body = body
    return places


def _overlap(found: dict[int, int]) -> bool:
    return any(a + n > b for (a, n), (b, _) in itertools.pairwise(sorted(found.items())))


def _agree_on_copies(program: Program, places: dict[str, dict[int, int]]) -> None:
    """An argument and the parameter that it is copied to are both registers of the same sizes, or both memory."""
    copies = [ins for ins in program.body if isinstance(ins, ir.Instruction) and ins.opcode == recursion.COPY]
    changed = True
    while changed:
        changed = False
        for ins in copies:
            a, b = (operand for operand in ins.operands[:2] if isinstance(operand, ir.Symbol))
            ours, theirs = places.get(a.name), places.get(b.name)
            if ours is None and theirs is None:
                continue
            both = {**(ours or {}), **(theirs or {})}
            fits = ours is not None and theirs is not None and a.offset == b.offset == 0
            fits = fits and all((ours or {}).get(at, n) == (theirs or {}).get(at, n) for at, n in both.items())
            if not fits or _overlap(both):
                changed |= places.pop(a.name, None) is not None
                changed |= places.pop(b.name, None) is not None
            elif both != ours or both != theirs:
                places[a.name], places[b.name] = dict(both), dict(both)
                changed = True


def _elements(ins: ir.Instruction, index: int) -> tuple[ir.Operand, ...]:
    operand = ins.operands[index]
    return operand.items if isinstance(operand, ir.Vector) else (operand,)


def _param_register(name: str, offset: int, nbytes: int) -> ir.Reg:
    return ir.Reg(f"{name}+{offset}", f"b{nbytes * 8}")


def _rewrite(
    program: Program,
    ins: ir.Instruction | ir.Label,
    places: dict[str, dict[int, int]],
    variables: dict[str, ir.LocalVariable],
) -> list[ir.Instruction | ir.Label]:
    if isinstance(ins, ir.Label):
        return [ins]
    if ins.opcode == "call":
        return _rewrite_builtin(program, ins, places)
    if ins.opcode not in ("ld", "st") or not ins.has("param"):
        return [ins]
    where = 1 if ins.opcode == "ld" else 0
    address = ins.operands[where]
    if not isinstance(address, ir.Address) or not isinstance(address.base, ir.Symbol):
        return [ins]
    name, offset = address.base.name, address.base.offset
    if name in places:
        nbytes = ir.type_nbytes(ins.type)
        moves: list[ir.Instruction | ir.Label] = []
        for index, value in enumerate(_elements(ins, 1 - where)):
            reg = _param_register(name, offset + index * nbytes, nbytes)
            pair = (value, reg) if ins.opcode == "ld" else (reg, value)
            moves.append(replace(ins, opcode="mov", modifiers=(ins.type,), operands=pair))
        return moves
    if name in variables:
        return [replace(ins, modifiers=tuple("local" if m == "param" else m for m in ins.modifiers))]
    return [ins]


def _rewrite_builtin(
    program: Program, ins: ir.Instruction, places: dict[str, dict[int, int]]
) -> list[ir.Instruction | ir.Label]:
    """Make registers of the arguments and results of a builtin."""

    def register(operand: ir.Operand) -> ir.Operand:
        if isinstance(operand, ir.Symbol):
            nbytes = places.get(operand.name, {}).get(operand.offset)
            if nbytes is None:
                return ir.Sink()
            return _param_register(operand.name, operand.offset, nbytes)
        return operand

    results, target, arguments = ins.operands
    assert isinstance(results, ir.Vector)
    assert isinstance(arguments, ir.Vector)
    inputs = tuple(register(item) for item in arguments.items)
    if any(isinstance(item, ir.Sink) for item in inputs):
        raise UnsupportedInstruction(program.name, ins.text, ins.line, "arguments are not simple .param variables")
    outputs = tuple(register(item) for item in results.items)
    return [replace(ins, operands=(ir.Vector(outputs), target, ir.Vector(inputs)))]
