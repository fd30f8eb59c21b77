"""Declarations and function bodies: tokens to ir.Function, with nested scopes resolved to unique names."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from vgpud.sim import ir
from vgpud.sim.isa import OPCODES, SPECIAL_REGISTERS
from vgpud.sim.ptx_error import NOT_SUPPORTED, PtxError
from vgpud.sim.ptx_lexer import Tokens, parse_integer

_MAX_VARIABLE_NBYTES = 1 << 40
_MAX_REGISTERS = 1 << 20


@dataclass(slots=True)
class Declaration:
    """One declared variable. `initializer` holds one value per element, None when absent."""

    name: str
    space: str
    type: str
    nbytes: int
    align: int
    extern: bool = False
    managed: bool = False
    initializer: list[ir.Scalar] | None = None


def parse_declaration(tokens: Tokens) -> list[Declaration]:
    """`.space .align n .type a, b[3] = {..}` up to, and not including, `;` or `)`. `.reg` is handled by the caller."""
    space, elem, align, extern, managed, lanes = "", "", 0, False, False, 1
    while tokens.peek.startswith("."):
        word = tokens.take()[1:]
        if word == "align":
            align = _integer(tokens)
        elif word in ("ptr", "visible", "weak", "common", "volatile"):
            continue
        elif word == "extern":
            extern = True
        elif word == "attribute":
            tokens.expect("(")
            while not tokens.accept(")"):
                managed |= tokens.take() == ".managed"
        elif word in ("v2", "v4"):
            lanes = int(word[1])
        elif word in ir.TYPE_NBITS:
            elem = word
        elif word in ("texref", "samplerref", "surfref"):
            raise PtxError(f"line {tokens.line}: .{word} is not supported", NOT_SUPPORTED)
        elif word in ("global", "const", "shared", "local", "param", "reg"):
            if not space:
                space = word
                if word == "const" and tokens.peek == "[":
                    raise PtxError(f"line {tokens.line}: constant banks are not supported", NOT_SUPPORTED)
        else:
            raise tokens.error(f"unexpected directive .{word}")
    if not elem:
        raise tokens.error("declaration without a type")
    found = []
    while True:
        name = tokens.take()
        count: int | None = None
        while tokens.accept("["):
            size = 0 if tokens.peek == "]" else _integer(tokens)
            tokens.expect("]")
            count = size if count is None else count * size
        initializer = None
        if tokens.accept("="):
            initializer = _initializer(tokens)
            if count == 0:
                count = len(initializer)
        unit = ir.type_nbytes(elem) * lanes
        nbytes = unit * (1 if count is None else count)
        if nbytes > _MAX_VARIABLE_NBYTES:
            raise tokens.error(f"{name} is too large")
        if initializer is not None and len(initializer) * ir.type_nbytes(elem) > nbytes:
            raise tokens.error(f"too many initializers for {name}")
        found.append(Declaration(name, space, elem, nbytes, align or unit, extern, managed, initializer))
        if tokens.peek != "," or (space == "param" and tokens.words[tokens.index + 1].startswith(".")):
            return found
        tokens.take()


def _integer(tokens: Tokens) -> int:
    negative = tokens.accept("-")
    value = parse_integer(tokens.peek)
    if value is None:
        raise tokens.error(f"expected an integer before `{tokens.peek}`")
    tokens.take()
    return -value if negative else value


def _initializer(tokens: Tokens) -> list[ir.Scalar]:
    if tokens.accept("{"):
        values: list[ir.Scalar] = []
        while not tokens.accept("}"):
            values += _initializer(tokens)
            tokens.accept(",")
        return values
    literal = parse_literal(tokens)
    if literal is not None:
        return [literal]
    name = tokens.take()
    if name == "generic" and tokens.accept("("):  # generic(symbol): spaces are one address range here
        name = tokens.take()
        offset = _offset(tokens)
        tokens.expect(")")
        return [ir.Symbol(name, offset + _offset(tokens))]
    if not re.match(r"[A-Za-z_$%]", name):
        raise tokens.error(f"unexpected initializer `{name}`")
    return [ir.Symbol(name, _offset(tokens))]


def _offset(tokens: Tokens) -> int:
    total = 0
    while tokens.peek in ("+", "-"):
        sign = -1 if tokens.take() == "-" else 1
        total += sign * _integer(tokens)
    return total


def parse_literal(tokens: Tokens) -> ir.Imm | ir.FloatImm | None:
    """An optional-sign numeric literal; the cursor does not move when there is none."""
    ahead = 1 if tokens.peek in ("-", "~") else 0
    word = tokens.words[tokens.index + ahead]
    if not word[:1].isdigit():
        return None
    negative = ahead and tokens.peek == "-"
    inverted = ahead and not negative
    tokens.index += 1 + ahead
    if word[:2] in ("0f", "0F") and len(word) == 10:
        return ir.FloatImm(int(word[2:], 16) ^ (0x80000000 if negative else 0), 32)
    if word[:2] in ("0d", "0D") and len(word) == 18:
        return ir.FloatImm(int(word[2:], 16) ^ (1 << 63 if negative else 0), 64)
    value = parse_integer(word)
    if value is not None:
        return ir.Imm(-value if negative else ~value if inverted else value)
    return ir.FloatImm(int.from_bytes(struct.pack("<d", float(word) * (-1 if negative else 1)), "little"), 64)


@dataclass(slots=True)
class _Scope:
    names: dict[str, ir.Operand] = field(default_factory=dict)
    ranges: dict[str, tuple[int, str]] = field(default_factory=dict)  # prefix: (count, type)
    labels: dict[str, str] = field(default_factory=dict)
    suffix: str = ""


class BodyParser:
    """Parses one `{ ... }` into a Function whose header is already known."""

    def __init__(self, tokens: Tokens, function: ir.Function, is_module_name: Callable[[str], bool]) -> None:
        self.tokens, self.function, self.is_module_name = tokens, function, is_module_name
        self.scopes = [_Scope()]
        self.scope_count = 0
        for param in (*function.returns, *function.params):
            self.scopes[0].names[param.name] = param.register or ir.Symbol(param.name)

    def parse(self) -> None:
        tokens = self.tokens
        tokens.expect("{")
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
        elif word in (".shared", ".local", ".param", ".extern", ".align"):
            for decl in parse_declaration(tokens):
                self._variable(decl)
        elif word in (".global", ".const"):
            raise PtxError(f"line {tokens.line}: {word} inside a function is not supported", NOT_SUPPORTED)
        elif word == ".pragma":
            while tokens.peek != ";":
                tokens.take()
        elif word == ".loc":
            self._skip_loc()
            return
        elif word == ".file":
            tokens.index += 3
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
        tokens.index += 4
        while tokens.accept(","):
            if tokens.accept("function_name"):
                tokens.take()
                _offset(tokens)
            elif tokens.accept("inlined_at"):
                tokens.index += 3
            else:
                raise tokens.error("malformed .loc")

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
            name = tokens.take()
            if tokens.accept("<"):
                count = _integer(tokens)
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
        if decl.extern:
            if not self.is_module_name(decl.name):
                raise self.tokens.error(f".extern {decl.name} inside a function is not declared by the module")
            return
        name = self._unique(decl.name, scope)
        self.function.variables[name] = ir.LocalVariable(name, decl.space, decl.nbytes, decl.align)
        scope.names[decl.name] = ir.Symbol(name)

    # ---- labels

    def _declare_labels(self) -> None:
        """Labels are visible before they are met: collect those of the scope that begins at the cursor."""
        words, index, depth, scope = self.tokens.words, self.tokens.index, 0, self.scopes[-1]
        if scope.suffix == "" and ":" not in words:
            return
        while index < len(words) - 1:
            word = words[index]
            if word == "{":
                depth += 1
            elif word == "}":
                depth -= 1
                if depth < 0:
                    return
            elif word == ":" and depth == 0:
                scope.labels[words[index - 1]] = self._unique(words[index - 1], scope)
            index += 1

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
        elif tokens.peek in (".callprototype", ".calltargets"):
            while not tokens.accept(";"):
                tokens.take()
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
            while tokens.peek != ";":
                operands.append(self._operand())
                if not tokens.accept(","):
                    break
        tokens.expect(";")
        return ir.Instruction(opcode, tuple(modifiers), tuple(operands), line, guard, negated)

    def _call(self) -> list[ir.Operand]:
        """(results), callee, (arguments)[, prototype]: always three operands, the callee a Name or a register."""
        tokens = self.tokens
        results, arguments = ir.Vector(()), ir.Vector(())
        if tokens.peek == "(":
            results = self._list("(", ")")
            tokens.expect(",")
        word = tokens.take()
        callee = self._resolve(word)
        target: ir.Operand = callee if isinstance(callee, ir.Reg) else ir.Name(word)
        if callee is None:
            if not self.is_module_name(word):
                raise tokens.error(f"call of undeclared function {word}")
            self.function.symbols.add(word)
        if tokens.accept(","):
            if tokens.peek == "(":
                arguments = self._list("(", ")")
                if tokens.accept(","):
                    tokens.take()
            else:
                tokens.take()
        return [results, target, arguments]

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
            return self._address()
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
            if _integer(tokens) != 0:
                raise PtxError(f"line {tokens.line}: {word}[n] as an operand is not supported", NOT_SUPPORTED)
            tokens.expect("]")
            return found
        if isinstance(found, ir.Symbol) and tokens.peek in ("+", "-"):
            return ir.Symbol(found.name, found.offset + _offset(tokens))
        return found

    def _address(self) -> ir.Address:
        tokens = self.tokens
        tokens.expect("[")
        literal = parse_literal(tokens)
        base: ir.Operand = literal if literal is not None else self._name(tokens.take())
        if not isinstance(base, (ir.Reg, ir.Imm, ir.Symbol)):
            raise tokens.error("malformed address")
        offset = _offset(tokens)
        if tokens.accept(","):  # texture coordinates: parsed so that the instruction can be named as unsupported
            while tokens.peek != "]":
                tokens.take()
        tokens.expect("]")
        if isinstance(base, ir.Symbol):
            return ir.Address(ir.Symbol(base.name, base.offset + offset))
        return ir.Address(base, offset)

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
            return ir.Special(word)
        if self.is_module_name(word):
            self.function.symbols.add(word)
            return ir.Symbol(word)
        raise self.tokens.error(f"`{word}` is not declared")
