"""Function bodies: tokens to ir.Function, with nested scopes resolved to unique names."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from vgpusim.ptx import form as ptx_form
from vgpusim.ptx import ir
from vgpusim.ptx.declaration import Declaration, integer, offset_of, parameters, parse_declaration, parse_literal
from vgpusim.ptx.error import NOT_SUPPORTED, PtxError
from vgpusim.ptx.isa import OPCODES, SPECIAL_REGISTERS
from vgpusim.ptx.lexer import Tokens

_MAX_REGISTERS = 1 << 20
_PART = re.compile(r"(.+)\.(b[0-3]|h[01])")  # a byte or a half of a register
_MAX_DEPTH = 256  # nested scopes: a name is sought in each


@dataclass(slots=True)
class _Scope:
    names: dict[str, ir.Operand] = field(default_factory=dict)
    ranges: dict[str, tuple[int, str]] = field(default_factory=dict)  # prefix: (count, type)
    labels: dict[str, str] = field(default_factory=dict)
    suffix: str = ""


_CALLS_NBYTES = 400  # of the text that says where code has been inlined


class BodyParser:
    """Parses one `{ ... }` into a Function whose header is already known. `names` maps what the text declares at module
    scope to names of the module."""

    def __init__(
        self, tokens: Tokens, function: ir.Function, names: Mapping[str, str], files: Mapping[int, str]
    ) -> None:
        self.tokens, self.function, self.names, self.files = tokens, function, names, files
        self.source = ""  # what the last .loc has said
        self.calls: dict[str, str] = {}  # file:line of inlined code: ", inlined at ..."
        self.scopes = [_Scope()]
        self.textured = False  # brackets of this instruction hold a texture or surface
        self.labels: dict[int, list[tuple[str, int]]] = {}  # by the index of the token after a scope's opening brace
        self.scope_count = 0
        for param in (*function.returns, *function.params):
            self.scopes[0].names[param.name] = param.register or ir.Symbol(param.name)

    def parse(self) -> None:
        tokens = self.tokens
        tokens.expect("{")
        self._collect_labels()
        self._declare_labels()
        depth = 1
        while depth:
            word = tokens.peek
            if word == "{":
                tokens.take()
                self.scope_count += 1
                self.scopes.append(_Scope(suffix=f".{self.scope_count}"))
                self._declare_labels()
                depth += 1
                if depth > _MAX_DEPTH:
                    raise tokens.error(f"more than {_MAX_DEPTH} nested scopes")
            elif word == "}":
                tokens.take()
                self.scopes.pop()
                depth -= 1
            elif word.startswith(".") and len(word) > 1:
                self._directive()
            elif tokens.accept(";"):
                continue
            elif word and tokens.words[tokens.index + 1] == ":":
                self._label()
            else:
                self.function.body.append(self._instruction())

    # ---- declarations

    def _directive(self) -> None:
        tokens = self.tokens
        word = tokens.peek
        if word == ".reg":
            self._registers()
        elif word in (".shared", ".local", ".param", ".global", ".const", ".extern", ".align"):
            for decl in parse_declaration(tokens):
                self._variable(decl)
        elif word == ".pragma":
            while tokens.peek != ";":
                tokens.take()
        elif word == ".loc":
            self._skip_loc()
            return
        elif word == ".file":
            tokens.skip(3)
            while tokens.accept(","):
                tokens.take()
            return
        elif word == ".section":
            while tokens.take() != "}":
                pass
            return
        else:
            raise tokens.error(f"unexpected directive {word}")
        tokens.expect(";")

    def _skip_loc(self) -> None:
        """`.loc file line column [, function_name label [+ n], inlined_at file line column]`."""
        tokens = self.tokens
        tokens.skip(1)
        file, line = integer(tokens), integer(tokens)
        tokens.skip(1)
        place, call = f"{self.files.get(file, '?')}:{line}", ""
        while tokens.accept(","):
            if tokens.accept("function_name"):
                tokens.take()
                offset_of(tokens)
            elif tokens.accept("inlined_at"):
                call = f"{self.files.get(integer(tokens), '?')}:{integer(tokens)}"
                tokens.skip(1)
            else:
                raise tokens.error("malformed .loc")
        if line:  # 0: the compiler's own code, which belongs to what is before it
            if call:
                outer = self.calls.get(call, "")  # where the call itself has been inlined
                self.calls[place] = f", inlined at {call}{outer}" if len(outer) < _CALLS_NBYTES else ""
            self.source = sys.intern(place + (self.calls[place] if call else ""))

    def _unique(self, name: str, scope: _Scope) -> str:
        return name + scope.suffix if scope.suffix else name

    def _registers(self) -> None:
        tokens, scope = self.tokens, self.scopes[-1]
        tokens.take()
        kind = ""
        while tokens.peek.startswith("."):
            word = tokens.take()[1:]
            if word in ("v2", "v4"):
                raise PtxError(f"line {tokens.line}: vector registers are not supported", NOT_SUPPORTED)
            if word not in ir.TYPE_NBITS:
                raise tokens.error(f"unknown register type .{word}")
            kind = word
        if not kind:
            raise tokens.error("register declaration without a type")
        while True:
            name = tokens.name()
            if tokens.accept("<"):
                count = integer(tokens)
                tokens.expect(">")
                if not 0 <= count <= _MAX_REGISTERS:
                    raise tokens.error(f"{count} registers declared")
                scope.ranges[name] = (count, kind)
            else:
                scope.names[name] = ir.Reg(self._unique(name, scope), kind)
            if not tokens.accept(","):
                return

    def _variable(self, decl: Declaration) -> None:
        scope = self.scopes[-1]
        if decl.linkage == "extern":
            if decl.name not in self.names:
                raise self.tokens.error(f".extern {decl.name} inside a function is not declared by the module")
            return
        name = self._unique(decl.name, scope)
        if decl.space in ("global", "const"):
            name = f"{self.function.name}:{name}"
            self.function.globals.append(replace(decl, name=name))
            scope.names[decl.name] = ir.Symbol(name)
            return
        self.function.variables[name] = ir.LocalVariable(name, decl.space, decl.nbytes, decl.align)
        scope.names[decl.name] = ir.Symbol(name)

    # ---- labels

    def _declare_labels(self) -> None:
        """Labels are visible before they are met: declare those of the scope that begins at the cursor."""
        scope = self.scopes[-1]
        for name, at in self.labels.get(self.tokens.index, ()):
            if name in scope.labels:
                self.tokens.index = at
                raise self.tokens.error(f"label {name} stands twice")
            scope.labels[name] = self._unique(name, scope)

    def _collect_labels(self) -> None:
        """Find the labels of every scope in one pass, however deep they nest."""
        words, first = self.tokens.words, self.tokens.index
        if ":" not in words:
            return
        open_scopes = [first]
        for index in range(first, len(words)):
            word = words[index]
            if word == "{":
                open_scopes.append(index + 1)
            elif word == "}":
                open_scopes.pop()
                if not open_scopes:
                    return
            elif word == ":":
                self.labels.setdefault(open_scopes[-1], []).append((words[index - 1], index - 1))

    def _find_label(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope.labels:
                return scope.labels[name]
        raise self.tokens.error(f"undefined label {name}")

    def _label(self) -> None:
        tokens = self.tokens
        line = tokens.line
        name = tokens.take()
        tokens.expect(":")
        if tokens.accept(".branchtargets"):
            targets = [self._find_label(tokens.take())]
            while tokens.accept(","):
                targets.append(self._find_label(tokens.take()))
            tokens.expect(";")
            self.function.branch_targets[name] = tuple(targets)
        elif tokens.accept(".callprototype"):
            self.function.prototypes[self._find_label(name)] = self._prototype()
        elif tokens.accept(".calltargets"):
            called = [self._callee(tokens.take())]
            while tokens.accept(","):
                called.append(self._callee(tokens.take()))
            tokens.expect(";")
            self.function.prototypes[self._find_label(name)] = ir.Prototype((), (), tuple(called))
        else:
            self.function.body.append(ir.Label(self._find_label(name), line))

    # ---- instructions

    def _instruction(self) -> ir.Instruction:
        tokens = self.tokens
        place = tokens.index
        guard, negated = None, False
        if tokens.accept("@"):
            negated = tokens.accept("!")
            found = self._name(tokens.take())
            if not isinstance(found, ir.Reg) or found.type != "pred":
                raise tokens.error("a guard must be a predicate register")
            guard = found
        line = tokens.line
        opcode, *modifiers = tokens.take().split(".")
        if opcode not in OPCODES:
            tokens.index = place
            raise PtxError(f"line {line}: unknown instruction `{opcode}`")
        operands: list[ir.Operand] = []
        if opcode == "bra":
            operands = [ir.Name(self._find_label(tokens.take()))]
        elif opcode == "brx":
            index = self._operand()
            tokens.expect(",")
            operands = [index, ir.Name(tokens.take())]
        elif opcode == "call":
            operands = self._call()
        else:
            self.textured = opcode in ("tex", "tld4", "suld", "sust")
            while tokens.peek != ";":
                part = _PART.fullmatch(tokens.peek) if opcode in ptx_form.OF_PARTS and len(operands) < 3 else None
                if part is not None:
                    tokens.take()
                    operands.append(self._name(part[1]))
                    modifiers.append(f"{'dab'[len(operands) - 1]}:{part[2]}")
                else:
                    operands.append(self._operand())
                if not tokens.accept(","):
                    break
        tokens.expect(";")
        ins = ir.Instruction(opcode, tuple(modifiers), tuple(operands), line, guard, negated, self.source)
        found_fault = ptx_form.fault(ins)
        if found_fault is not None:
            raise PtxError(f"line {line}: `{ins.text}` {found_fault}")
        return ins

    def _call(self) -> list[ir.Operand]:
        """Results, callee, arguments; the callee is a Name, or a register and the name of its prototype follows."""
        tokens = self.tokens
        results, arguments = ir.Vector(()), ir.Vector(())
        if tokens.peek == "(":
            results = self._list("(", ")")
            tokens.expect(",")
        word = tokens.take()
        callee = self._resolve(word)
        if callee is not None and not isinstance(callee, ir.Reg):
            raise tokens.error(f"call of {word}, which is not a function")
        target = callee or ir.Name(self._callee(word))
        prototype: list[ir.Operand] = []
        while tokens.accept(","):
            if tokens.peek == "(":
                arguments = self._list("(", ")")
            else:
                prototype = [ir.Name(self._find_label(tokens.take()))]
        if callee is None:
            return [results, target, arguments]
        if not prototype:
            raise tokens.error("call through a register without a prototype")
        return [results, target, arguments, *prototype]

    def _callee(self, word: str) -> str:
        name = self.names.get(word)
        if name is None:
            raise self.tokens.error(f"call of undeclared function {word}")
        self.function.symbols.add(name)
        return name

    def _prototype(self) -> ir.Prototype:
        """`(results) _ (parameters) attributes;`"""
        tokens = self.tokens
        sizes: list[tuple[int, ...]] = [(), ()]
        if tokens.peek == "(":
            sizes[0] = tuple(p.nbytes for p in parameters(tokens))
        if not tokens.peek.startswith(("(", ";", ".")):
            tokens.take()
        if tokens.peek == "(":
            sizes[1] = tuple(p.nbytes for p in parameters(tokens))
        while not tokens.accept(";"):
            tokens.take()
        return ir.Prototype(sizes[0], sizes[1])

    def _list(self, opening: str, closing: str) -> ir.Vector:
        tokens = self.tokens
        tokens.expect(opening)
        items: list[ir.Operand] = []
        while not tokens.accept(closing):
            items.append(self._operand())
            if not tokens.accept(",") and tokens.peek != closing:
                raise tokens.error(f"expected `{closing}` before `{tokens.peek}`")
        return ir.Vector(tuple(items))

    def _operand(self) -> ir.Operand:
        tokens = self.tokens
        word = tokens.peek
        if word == "{":
            return self._list("{", "}")
        if word == "[":
            return self._textured() if self.textured else self._address()
        if word == "!":
            tokens.take()
            found = self._name(tokens.take())
            if not isinstance(found, ir.Reg):
                raise tokens.error("`!` needs a predicate register")
            return ir.Not(found)
        literal = parse_literal(tokens)
        if literal is not None:
            return literal
        if word == "-" and tokens.words[tokens.index + 1][:1] in "%$_":
            raise tokens.error("a register cannot be negated")
        tokens.take()
        if tokens.peek == "|":
            tokens.take()
            second = tokens.take()
            return ir.Pair(self._register(word), self._register(second))
        if word == "_":
            return ir.Sink()
        found = self._name(word)
        if isinstance(found, ir.Symbol) and tokens.accept("["):  # the address of an array element: tinygrad writes s[0]
            if integer(tokens) != 0:
                raise PtxError(f"line {tokens.line}: {word}[n] as an operand is not supported", NOT_SUPPORTED)
            tokens.expect("]")
            return found
        if isinstance(found, ir.Symbol) and tokens.peek in ("+", "-"):
            return ir.Symbol(found.name, found.offset + offset_of(tokens))
        return found

    def _textured(self) -> ir.Vector:
        """`[handle, {coordinates}]`, as a vector of the address and the rest."""
        tokens = self.tokens
        tokens.expect("[")
        base = self._name(tokens.take())
        if not isinstance(base, (ir.Reg, ir.Symbol)):
            raise tokens.error("malformed texture")
        items: list[ir.Operand] = [ir.Address(base)]
        while tokens.accept(","):
            items.append(self._operand())
        tokens.expect("]")
        return ir.Vector(tuple(items))

    def _address(self) -> ir.Address | ir.Vector:
        """`[base + offset]`, or `[map, {coordinates}]` of a tensor, as a vector of the address and the coordinates."""
        tokens = self.tokens
        tokens.expect("[")
        literal = parse_literal(tokens)
        base: ir.Operand = literal if literal is not None else self._name(tokens.take())
        if not isinstance(base, (ir.Reg, ir.Imm, ir.Symbol)):
            raise tokens.error("malformed address")
        offset = offset_of(tokens)
        place = ir.Address(base, offset)
        if isinstance(base, ir.Symbol):
            place = ir.Address(ir.Symbol(base.name, base.offset + offset))
        items: list[ir.Operand] = [place]
        while tokens.accept(","):
            items.append(self._operand())
        tokens.expect("]")
        return place if len(items) == 1 else ir.Vector(tuple(items))

    def _register(self, word: str) -> ir.Reg | None:
        if word == "_":
            return None
        found = self._name(word)
        if not isinstance(found, ir.Reg):
            raise self.tokens.error(f"`{word}` is not a register")
        return found

    def _resolve(self, word: str) -> ir.Operand | None:
        """A register or function-scope variable; None when no scope declares `word`."""
        for scope in reversed(self.scopes):
            found = scope.names.get(word)
            if found is not None:
                return found
            if scope.ranges:
                digits = len(word)
                while digits and word[digits - 1].isdigit():  # %f1<10> declares %f10..%f19: try every split
                    digits -= 1
                    entry = scope.ranges.get(word[:digits])
                    if entry is not None and str(int(word[digits:])) == word[digits:] and int(word[digits:]) < entry[0]:
                        reg = ir.Reg(self._unique(word, scope), entry[1])
                        scope.names[word] = reg
                        return reg
        return None

    def _name(self, word: str) -> ir.Operand:
        found = self._resolve(word)
        if found is not None:
            return found
        if word in SPECIAL_REGISTERS:
            self.function.reserved_shared |= word.startswith("%reserved_smem")
            return ir.Special(word)
        if word in self.names:
            name = self.names[word]
            self.function.symbols.add(name)
            self.function.addresses.add(name)
            return ir.Symbol(name)
        raise self.tokens.error(f"`{word}` is not declared")
