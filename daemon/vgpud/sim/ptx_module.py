"""A PTX module: an index of its functions, found without reading bodies, and its module-scope variables."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

from vgpud.sim import ir
from vgpud.sim.isa import MAX_VERSION
from vgpud.sim.ptx_error import NOT_SUPPORTED, UNSUPPORTED_PTX_VERSION, PtxError
from vgpud.sim.ptx_lexer import Tokens
from vgpud.sim.ptx_parser import BodyParser, Declaration, parse_declaration

EAGER_TEXT_NBYTES = 256 << 10  # smaller modules are parsed completely, so that syntax errors show at load
_DEFAULT_MAX_THREADS = 1024

_TOP = re.compile(r'//[^\n]*|/\*.*?\*/|"[^"\n]*"|[{};]', re.DOTALL)
_BRACES = re.compile(r'//[^\n]*|/\*.*?\*/|"[^"\n]*"|[{}]', re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_HEADER = re.compile(
    r"\s*\.version\s+(\d+)\.(\d+)\s+\.target\s+(\w+(?:\s*,\s*\w+)*)\s*(?:\.address_size\s+(\d+))?(?=\s|$)"
)
_LINE_DIRECTIVE = re.compile(r"\s*\.(?:file\b[^\n]*|loc\b[^\n]*|version\b[^\n]*|target\b[^\n]*|address_size\b[^\n]*)")
_FUNCTION = re.compile(r"\.(entry|func)\b")
_FUNCTION_NAME = re.compile(r"\.entry\s+([\w$%]+)|\.func\s*(?:\.\w+\s*)*(?:\([^)]*\)\s*)?([\w$%]+)")


@dataclass(slots=True)
class Variable:
    """A module-scope variable in device memory.

    `initial` has `nbytes` bytes; each of `relocations` (offset, symbol, addend) stores an 8-byte address there."""

    name: str
    space: str  # "global", "const" or "managed"
    nbytes: int
    align: int
    initial: bytes
    relocations: list[tuple[int, str, int]] = field(default_factory=list)


@dataclass(slots=True)
class Param:
    """A kernel parameter's place in the parameter block, in bytes."""

    offset: int
    nbytes: int
    align: int


@dataclass(slots=True)
class EntryInfo:
    """What the driver tells about a kernel; `register_count` is an estimate from the registers declared and used."""

    name: str
    params: list[Param]
    param_nbytes: int
    shared_nbytes: int
    local_nbytes: int
    register_count: int
    max_threads: int | None
    required_block: tuple[int, int, int] | None


@dataclass(slots=True)
class _Place:
    start: int  # of the header
    body: int  # of the opening brace
    end: int  # after the closing brace
    is_entry: bool


class PtxModule:
    """See parse()."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.version: tuple[int, int] = (0, 0)
        self.target = ""
        self.entries: list[str] = []
        self.variables: list[Variable] = []
        self.shared: dict[str, Declaration] = {}
        self._places: dict[str, _Place] = {}
        self._prototypes: set[str] = set()
        self._variable_names: set[str] = set()
        self._functions: dict[str, ir.Function] = {}

    @classmethod
    def parse(cls, text: str) -> PtxModule:
        """Index a module.

        Raises:
            PtxError: INVALID_PTX for malformed text, UNSUPPORTED_PTX_VERSION above PTX ISA 9.0, NOT_SUPPORTED for
            32-bit addresses. Bodies of modules above EAGER_TEXT_NBYTES are checked when their kernel is first used.
        """
        module = cls(text.rstrip("\0"))
        module._read_header()
        module._index()
        if len(module.text) <= EAGER_TEXT_NBYTES:
            for name in module._places:
                module.function(name)
        return module

    def _read_header(self) -> None:
        head = _HEADER.match(_COMMENT.sub(" ", self.text[: 64 << 10]))
        if head is None:
            raise PtxError("no .version and .target at the start")
        self.version = (int(head[1]), int(head[2]))
        self.target = head[3].split(",")[0].strip()
        if self.version > MAX_VERSION:
            raise PtxError(
                f"PTX ISA {head[1]}.{head[2]} is newer than {MAX_VERSION[0]}.{MAX_VERSION[1]}", UNSUPPORTED_PTX_VERSION
            )
        if not re.fullmatch(r"sm_\d+[af]?", self.target):
            raise PtxError(f"unknown target {self.target}")
        if (head[4] or "32") != "64":
            raise PtxError("only .address_size 64 is supported", NOT_SUPPORTED)

    def _index(self) -> None:
        text, start, place, depth = self.text, 0, 0, 0
        while True:
            found = _TOP.search(text, place)
            if found is None:
                break
            place = found.end()
            mark = found.group()
            if mark == "{" and depth == 0:
                header = _COMMENT.sub(" ", text[start : found.start()])
                if _FUNCTION.search(header):
                    place = self._function_place(start, found.start(), header)
                    start = place
                    continue
                if ".section" in header:
                    start = place = self._matching(found.start())
                    continue
            if mark == "{":
                depth += 1
            elif mark == "}":
                depth -= 1
                if depth < 0:
                    raise Tokens(text, found.start(), found.end()).error("unexpected `}`")
            elif mark == ";" and depth == 0:
                self._statement(start, found.start())
                start = place
        rest = _LINE_DIRECTIVE.sub("", _COMMENT.sub(" ", text[start:])).strip()
        if depth or rest:
            raise PtxError(f"unexpected end after `{rest[:40]}`")

    def _matching(self, brace: int) -> int:
        """The place after the brace that closes the one at `brace`."""
        depth, place = 0, brace
        while True:
            found = _BRACES.search(self.text, place)
            if found is None:
                raise PtxError("unbalanced braces")
            place = found.end()
            depth += {"{": 1, "}": -1}.get(found.group(), 0)
            if depth == 0:
                return place

    def _function_place(self, start: int, body: int, header: str) -> int:
        named = _FUNCTION_NAME.search(header)
        if named is None:
            raise PtxError("function without a name")
        name = named[1] or named[2]
        end = self._matching(body)
        if name in self._places:
            raise PtxError(f"{name} is defined twice")
        self._places[name] = _Place(start, body, end, named[1] is not None)
        if named[1]:
            self.entries.append(name)
        return end

    def _statement(self, start: int, end: int) -> None:
        statement = _COMMENT.sub(" ", self.text[start:end])
        if _FUNCTION.search(statement):
            named = _FUNCTION_NAME.search(statement)
            if named is not None:
                self._prototypes.add(named[1] or named[2])
            return
        tokens = Tokens(self.text, start, end)
        while tokens.peek in (".version", ".target", ".address_size", ".file", ".loc"):
            line = tokens.line
            while tokens.peek and tokens.line == line:
                tokens.take()
        if not tokens.peek or tokens.peek in (".pragma", ".alias"):
            return
        for decl in parse_declaration(tokens):
            self._declare(decl, tokens)
        if tokens.peek:
            raise tokens.error(f"unexpected `{tokens.peek}`")

    def _declare(self, decl: Declaration, tokens: Tokens) -> None:
        if decl.space == "shared":
            self.shared[decl.name] = decl
        elif decl.space in ("global", "const"):
            if decl.extern:
                raise PtxError(f"line {tokens.line}: .extern variable {decl.name} is not supported", NOT_SUPPORTED)
            initial, relocations = _initial_bytes(decl, tokens)
            space = "managed" if decl.managed else decl.space
            self.variables.append(Variable(decl.name, space, decl.nbytes, decl.align, initial, relocations))
            self._variable_names.add(decl.name)
        else:
            raise tokens.error(f".{decl.space} at module scope")

    # ---- functions

    def is_name(self, name: str) -> bool:
        """Whether the module declares a variable or function of this name."""
        return name in self._variable_names or name in self.shared or name in self._places or name in self._prototypes

    def is_variable(self, name: str) -> bool:
        return name in self._variable_names

    def defines(self, name: str) -> bool:
        """Whether `name` is a function with a body."""
        return name in self._places

    def function(self, name: str) -> ir.Function:
        """The parsed body of an .entry or .func; parsed once."""
        function = self._functions.get(name)
        if function is None:
            place = self._places.get(name)
            if place is None:
                raise PtxError(f"no function {name}")
            tokens = Tokens(self.text, place.start, place.end)
            function = _parse_header(tokens, name, place.is_entry)
            BodyParser(tokens, function, self.is_name).parse()
            self._functions[name] = function
        return function

    def source(self, name: str) -> str:
        """The text of a function, header included."""
        place = self._places[name]
        return self.text[place.start : place.end]

    def entry(self, name: str) -> EntryInfo:
        """Attributes of an entry. Raises PtxError (INVALID_PTX) when its body is malformed."""
        if name not in self.entries:
            raise PtxError(f"no entry {name}")
        function = self.function(name)
        offset, params = 0, []
        for param in function.params:
            offset = align_up(offset, param.align)
            params.append(Param(offset, param.nbytes, param.align))
            offset += param.nbytes
        words = {r.name: max(1, r.nbits // 32) for i in function.body if isinstance(i, ir.Instruction)
                 for r in (*ir.defined(i), *ir.used(i)) if r.type != "pred"}  # fmt: skip
        local = 0
        for variable in function.variables.values():
            if variable.space == "local":
                local = align_up(local, variable.align) + variable.nbytes
        return EntryInfo(
            name, params, offset, shared_layout(self, self.reachable(name))[1], local,
            min(255, max(16, sum(words.values()) // 3)), function.max_threads, function.required_block,
        )  # fmt: skip

    def reachable(self, name: str) -> list[ir.Function]:
        """The function and all it may call or name, itself first."""
        found, pending = [], [name]
        seen = {name}
        while pending:
            function = self.function(pending.pop())
            found.append(function)
            for symbol in sorted(function.symbols):
                if symbol in self._places and symbol not in seen:
                    seen.add(symbol)
                    pending.append(symbol)
        return found


def align_up(value: int, align: int) -> int:
    return (value + align - 1) // align * align


def shared_layout(module: PtxModule, functions: list[ir.Function]) -> tuple[dict[str, int], int]:
    """Offsets of the shared variables that `functions` mention, and the static size; dynamic memory follows it, at
    offset size, 16-byte aligned. Keys of function-scope variables are (function, variable) joined by a colon."""
    offsets: dict[str, int] = {}
    size = 0
    mentioned = {symbol for function in functions for symbol in function.symbols}
    dynamic = []
    for name, decl in module.shared.items():
        if name in mentioned:
            if decl.nbytes == 0:
                dynamic.append(name)
                continue
            size = align_up(size, decl.align)
            offsets[name] = size
            size += decl.nbytes
    for function in functions:
        for variable in function.variables.values():
            if variable.space == "shared":
                size = align_up(size, variable.align)
                offsets[f"{function.name}:{variable.name}"] = size
                size += variable.nbytes
    if dynamic:
        size = align_up(size, max(16, *(module.shared[name].align for name in dynamic)))
        offsets.update(dict.fromkeys(dynamic, size))
    return offsets, size


def _parse_header(tokens: Tokens, name: str, is_entry: bool) -> ir.Function:
    while tokens.peek not in (".entry", ".func"):
        if not tokens.peek.startswith(".") and not tokens.peek.isdigit() and not tokens.peek.startswith('"'):
            raise tokens.error(f"unexpected `{tokens.peek}` before {name}")
        if tokens.peek in (".file", ".loc", ".version", ".target", ".address_size", ".section"):
            line = tokens.line
            while tokens.peek and tokens.line == line:
                tokens.take()
        else:
            tokens.take()
    tokens.take()
    function = ir.Function(name, is_entry, [], [])
    while tokens.peek.startswith("."):
        tokens.take()  # .noreturn, .attribute before the name
    if tokens.peek == "(":
        function.returns = _parameters(tokens)
    if tokens.take() != name:
        raise tokens.error(f"malformed header of {name}")
    if tokens.peek == "(":
        function.params = _parameters(tokens)
    while tokens.peek != "{":
        word = tokens.take()
        if word in (".maxntid", ".reqntid"):
            block = [1, 1, 1]
            for axis in range(3):
                value = tokens.take()
                block[axis] = int(value) if value.isdigit() else 0
                if not 0 < block[axis] <= _DEFAULT_MAX_THREADS:
                    raise tokens.error(f"bad {word}")
                if not tokens.accept(","):
                    break
            function.max_threads = block[0] * block[1] * block[2]
            if word == ".reqntid":
                function.required_block = (block[0], block[1], block[2])
    return function


def _parameters(tokens: Tokens) -> list[ir.Parameter]:
    tokens.expect("(")
    params: list[ir.Parameter] = []
    while not tokens.accept(")"):
        if tokens.accept(".reg"):
            kind = tokens.take()[1:]
            if kind not in ir.TYPE_NBITS:
                raise tokens.error(f"unknown type .{kind}")
            name = tokens.take()
            params.append(ir.Parameter(name, kind, ir.type_nbytes(kind), 1, ir.Reg(name, kind)))
        else:
            align = _param_align(tokens)
            for decl in parse_declaration(tokens):
                params.append(ir.Parameter(decl.name, decl.type, decl.nbytes, align or decl.align))
        tokens.accept(",")
    return params


def _param_align(tokens: Tokens) -> int:
    """The alignment of a parameter: `.param .align 8 .b8 p[16]`. In `.param .u64 .ptr .global .align 16 p` the
    alignment is that of the pointee, so 0: the type's own counts."""
    words, index = tokens.words, tokens.index
    while words[index].startswith(".") and words[index] != ".ptr":
        if words[index] == ".align":
            return int(words[index + 1])
        index += 1
    if words[index] == ".ptr":
        kind = next((w[1:] for w in words[tokens.index : index] if w[1:] in ir.TYPE_NBITS), "b8")
        return ir.type_nbytes(kind)
    return 0


def _initial_bytes(decl: Declaration, tokens: Tokens) -> tuple[bytes, list[tuple[int, str, int]]]:
    data, relocations = bytearray(), []
    unit = ir.type_nbytes(decl.type)
    for value in decl.initializer or []:
        match value:
            case ir.Imm():
                data += (value.value & ((1 << unit * 8) - 1)).to_bytes(unit, "little")
            case ir.FloatImm():
                bits = value.bits
                if decl.type == "f32" and value.nbits == 64:
                    bits = struct.unpack("<I", struct.pack("<f", struct.unpack("<d", bits.to_bytes(8, "little"))[0]))[0]
                data += bits.to_bytes(max(unit, value.nbits // 8), "little")[:unit]
            case ir.Symbol() if unit == 8:
                relocations.append((len(data), value.name, value.offset))
                data += bytes(8)
            case _:
                raise PtxError(f"line {tokens.line}: initializer of {decl.name} is not supported", NOT_SUPPORTED)
    return bytes(data).ljust(decl.nbytes, b"\0"), relocations
