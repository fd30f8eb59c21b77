"""A PTX module, of one text or several linked: its kernels, functions and variables by names that are unique in it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vgpusim.ptx import device_runtime, ir
from vgpusim.ptx.declaration import Declaration, parse_header
from vgpusim.ptx.error import NOT_SUPPORTED, PtxError
from vgpusim.ptx.lexer import Tokens
from vgpusim.ptx.link import resolve
from vgpusim.ptx.parser import BodyParser
from vgpusim.ptx.text import Place, PtxText
from vgpusim.ptx.undefined import (
    Rule,
    define_variables,
    is_drivers,
    refuse_calls,
    refuse_references,
    undefined_variables,
)

EAGER_TEXT_NBYTES = 256 << 10  # smaller texts are parsed completely, so that syntax errors show at load,
EAGER_MODULE_NBYTES = 8 << 20  # unless there are very many (NCCL: 183 texts, 180 MB)
FOLLOWED_NBYTES = 16 << 20
"""Text of functions in a module where a call through a pointer becomes a choice among them. All of them would be parsed
for one such call, and no kernel that holds so much is compiled (inline.py)."""

FUNCTIONS = " functions"
"""A hidden variable, there when the module has a .func: function i's address is its place i * FUNCTION_NBYTES. So an
address is unique on the device, can be stored and compared, and is known to every kernel as a variable's is."""
FUNCTION_NBYTES = 16
_MAX_BLOCK_THREADS, _REGISTERS_PER_BLOCK, _MAX_REGISTERS, _REGISTER_UNIT = 1024, 65536, 255, 8  # of every card
_MIN_REGISTERS = 16  # ptxas raises a lower limit to what calls need (nvcc's manual, --maxrregcount)
RESERVED_SHARED_NBYTES = 1024  # as on cards from sm_80 on; kernels address its two halves


@dataclass(slots=True)
class Variable:
    """A module-scope variable in device memory.

    `initial` holds the first of its `nbytes` bytes, the rest is zero; each of `relocations` (offset, symbol, addend)
    stores an 8-byte address there."""

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
    target: str  # sm_90a
    params: list[Param]
    param_nbytes: int
    shared_nbytes: int
    local_nbytes: int
    register_count: int
    max_threads: int | None
    required_block: tuple[int, int, int] | None
    cluster: tuple[int, int, int] | None


@dataclass(slots=True)
class _Source:
    """A function's text, and the names that its body may use, mapped to names of the module."""

    text: PtxText
    place: Place
    names: Mapping[str, str]


class PtxModule:
    """See parse() and link()."""

    def __init__(self, texts: Sequence[PtxText]) -> None:
        self.version = max(text.version for text in texts)
        self.target = texts[0].target
        self.entries: list[str] = []
        self.variables: list[Variable] = []
        self.shared: dict[str, Declaration] = {}
        self._texts = texts
        self._sources: dict[str, _Source] = {}
        self._variable_names: set[str] = set()
        self._functions: dict[str, ir.Function] = {}
        self._numbers: dict[str, int] = {}
        self._in_initializers: set[str] = set()
        self._addressed: list[str] | None = None  # functions, in order
        self._declared: set[str] = set()  # functions that have a prototype
        self._followed: tuple[str, ...] = ()  # see following()
        self._described: dict[str, EntryInfo] = {}
        self._undefined: list[str] = []  # variables, and functions whose addresses initialise variables

    @classmethod
    def parse(cls, text: str) -> PtxModule:
        """Index a module of one text, a whole program; see link()."""
        return cls.link([text], Rule.WHOLE)

    @classmethod
    def link(cls, texts: Sequence[str], rule: Rule = Rule.LINKED) -> PtxModule:
        """Index a module of at least one text; one text if the rule is WHOLE.

        Raises:
            PtxError: As PtxText, link.resolve() and require_defined(). Bodies in texts above EAGER_TEXT_NBYTES are
                checked when their kernel is first used.
        """
        indexed = [PtxText(text) for text in texts]
        if rule is Rule.WHOLE:
            define_variables(indexed[0])
        module = cls(_with_device_runtime(indexed))
        module._link()
        module.require_defined(rule)
        return module

    def require_defined(self, rule: Rule) -> None:
        """Refuse names that are defined nowhere, as far as bodies have been parsed.

        Raises:
            PtxError: INVALID_PTX, naming them.
        """
        if rule is Rule.LINKED:
            refuse_references([*self._undefined, *(n for name in self.entries for n in self._absent_below(name))])
            return
        absent = [name for function in self._functions.values() for name in self._absent(function)]
        if rule is Rule.PART:  # another input may define what is .extern
            extern = {name for text in self._texts for name, of in text.prototypes.items() if of == "extern"}
            refuse_calls(name for name in absent if name not in extern)
        else:
            refuse_calls([*absent, *self._undefined])

    def _absent(self, function: ir.Function) -> list[str]:
        """Functions without a body that `function` names."""
        declared = function.symbols & self._declared - self._sources.keys()
        return sorted(name for name in declared if not is_drivers(name))

    def _absent_below(self, name: str) -> list[str]:
        """Those that a kernel reaches through direct calls."""
        found: list[str] = []
        pending, seen = [name], {name}
        while pending:
            function = self._functions.get(pending.pop())
            if function is not None:
                found += self._absent(function)
                fresh = {n for n in function.symbols if self.is_callable(n)} - seen
                seen |= fresh
                pending += sorted(fresh)
        return found

    def _link(self) -> None:
        names = resolve(self._texts)
        self._declared = {
            scope[n] for text, scope in zip(self._texts, names.scopes, strict=True) for n in text.prototypes
        }
        self._undefined = undefined_variables(self._texts, names.owners)
        for index, text in enumerate(self._texts):
            scope = names.scopes[index]
            for name, place in text.places.items():
                if names.owns(index, scope[name]):
                    self._sources[scope[name]] = _Source(text, place, scope)
        self.entries = [name for name, source in self._sources.items() if source.place.is_entry]
        if len(self.entries) < len(self._sources):
            functions = [name for name in self._sources if not self._sources[name].place.is_entry]
            self._numbers = {name: number for number, name in enumerate([*self.entries, *functions])}
            nbytes = FUNCTION_NBYTES * len(self._numbers)
            self._add(Variable(FUNCTIONS, "global", nbytes, FUNCTION_NBYTES, bytes(nbytes)))
        for index, text in enumerate(self._texts):
            scope = names.scopes[index]
            for name, decl in text.variables.items():
                if names.owns(index, scope[name]):
                    self._define(decl, scope, scope[name])
        all_nbytes = sum(len(text.text) for text in self._texts)
        eager_nbytes = EAGER_TEXT_NBYTES if all_nbytes <= EAGER_MODULE_NBYTES else 0
        for name, source in list(self._sources.items()):
            if len(source.text.text) <= eager_nbytes or source.text.declares_variables(source.place):
                self.function(name)
        for variable in self.variables:
            places = (self._relocation(variable.name, *place) for place in variable.relocations)
            variable.relocations = [place for place in places if place]

    def _define(self, decl: Declaration, scope: Mapping[str, str], name: str) -> None:
        if decl.space == "shared":
            known = self.shared.get(name)
            if known is None or known.linkage == "extern":
                self.shared[name] = decl
        elif decl.linkage != "extern":
            initial, relocations = _initial_bytes(decl)
            resolved = [(offset, scope.get(symbol, symbol), addend) for offset, symbol, addend in relocations]
            space = "managed" if decl.managed else decl.space
            self._add(Variable(name, space, decl.nbytes, decl.align, initial, resolved))

    def _add(self, variable: Variable) -> None:
        self.variables.append(variable)
        self._variable_names.add(variable.name)

    def _relocation(self, variable: str, offset: int, symbol: str, addend: int) -> tuple[int, str, int] | None:
        """None if the symbol is not defined."""
        place = self.address_of(ir.Symbol(symbol, addend))
        if place.name != FUNCTIONS and symbol in self._sources:
            raise PtxError(f"{variable}: initialised with the address of kernel {symbol}", NOT_SUPPORTED)
        if place.name not in self._variable_names:
            self._undefined.append(symbol)
            return None
        self._in_initializers.add(symbol)
        return offset, place.name, place.offset

    @property
    def texts(self) -> list[str]:
        return [text.text for text in self._texts]

    # ---- functions

    def is_variable(self, name: str) -> bool:
        return name in self._variable_names

    def defines(self, name: str) -> bool:
        """Whether `name` is a function with a body."""
        return name in self._sources

    def is_callable(self, name: str) -> bool:
        """Whether `name` is a function with a body, and no kernel: kernels are launched, never called."""
        return name in self._sources and not self._sources[name].place.is_entry

    def address_of(self, symbol: ir.Symbol) -> ir.Symbol:
        """For a function, its address in FUNCTIONS; any other symbol unchanged."""
        number = self._numbers.get(symbol.name)
        return symbol if number is None else ir.Symbol(FUNCTIONS, number * FUNCTION_NBYTES + symbol.offset)

    def function(self, name: str) -> ir.Function:
        """The parsed body of an .entry or .func; parsed once."""
        function = self._functions.get(name)
        if function is None:
            source = self._sources.get(name)
            if source is None:
                raise PtxError(f"no function {name}")
            place = source.place
            tokens = Tokens(source.text.text, place.start, place.end, source.text.lines)
            function = parse_header(tokens, place.name, place.is_entry)
            function.name = name
            try:
                BodyParser(tokens, function, source.names, source.text.files).parse()
            except PtxError as error:
                raise source.text.judged(error) from error
            for decl in function.globals:
                self._define(decl, source.names, decl.name)
            self._functions[name] = function
        return function

    def source(self, name: str) -> str:
        """The text of a function, header included."""
        source = self._sources[name]
        return source.text.text[source.place.start : source.place.end]

    def follows(self, prototype: ir.Prototype) -> bool:
        """Whether callable_by() can list the functions that a call through a pointer may reach."""
        if prototype.targets is not None:
            return True
        places = [source.place for source in self._sources.values() if not source.place.is_entry]
        return sum(place.end - place.body for place in places) <= FOLLOWED_NBYTES

    def following(self, offsets: Sequence[int]) -> PtxModule:
        """This module, in which a call through a pointer that may reach more functions than a kernel can hold reaches
        only the functions at these offsets in FUNCTIONS. Offsets without a function are ignored.
        """
        names = {number * FUNCTION_NBYTES: name for name, number in self._numbers.items() if self.is_callable(name)}
        view = copy.copy(self)
        view._described = {}
        view._followed = tuple(sorted(names[offset] for offset in offsets if offset in names))
        return view

    def callable_by(self, prototype: ir.Prototype) -> list[str]:
        """Functions that a call through a pointer may reach: those listed, else all of its form whose address is taken
        anywhere, since a pointer may come from another kernel. Where these are too many (follows()): those of
        following()."""
        if prototype.targets is not None:
            return [name for name in prototype.targets if name in self._sources]
        if not self.follows(prototype):
            return [name for name in self._followed if self.function(name).prototype == prototype]
        if self._addressed is None:
            taken = self._in_initializers.union(*(self.function(name).addresses for name in self._sources))
            self._addressed = [name for name in self._numbers if name in taken]
        return [name for name in self._addressed if self.function(name).prototype == prototype]

    def entry(self, name: str) -> EntryInfo:
        """Attributes of an entry. Raises PtxError (INVALID_PTX) when its body is malformed."""
        known = self._described.get(name)
        if known is None:
            known = self._described[name] = self._describe(name)
        return known

    def _describe(self, name: str) -> EntryInfo:
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
        functions = self.reachable(name)
        shared = shared_layout(self, functions)[1]
        return EntryInfo(
            name, self._sources[name].text.target, params, offset, shared - reserved_shared(functions), local,
            _register_estimate(sum(words.values()), function, self._sources[name].text.register_limit),
            function.max_threads, function.required_block, function.cluster,
        )  # fmt: skip

    def reachable(self, name: str) -> list[ir.Function]:
        """The function and all it may call or name, itself first."""
        found, pending = [], [name]
        seen = {name}
        while pending:
            function = self.function(pending.pop())
            found.append(function)
            called = {t for prototype in function.prototypes.values() for t in self.callable_by(prototype)}
            for symbol in sorted(function.symbols | called):
                if self.is_callable(symbol) and symbol not in seen:
                    seen.add(symbol)
                    pending.append(symbol)
        return found


def _with_device_runtime(texts: list[PtxText]) -> list[PtxText]:
    """If kernels of a program launch kernels, the program's texts are linked with vgpu's functions in place of
    NVIDIA's.
    """
    found = any(device_runtime.NAMES & text.prototypes.keys() for text in texts)
    for text in texts:
        for name in device_runtime.NAMES & text.places.keys():
            text.prototypes[name] = text.places.pop(name).linkage
    return [*texts, PtxText(device_runtime.TEXT)] if found else texts


def _register_estimate(word_count: int, function: ir.Function, limit: int | None) -> int:
    """Registers of a thread, from the words its body names. As ptxas does, it leaves room for the largest block that
    the kernel declares; without a declaration, for any block: an occupancy of 0 is a division by zero in CUB.

    Args:
        limit: an option's, which a limit that the kernel declares replaces.
    """
    x, y, z = function.required_block or (0, 0, 0)
    declared = x * y * z or function.max_threads
    blocks = (function.min_blocks if declared else None) or 1
    room = _REGISTERS_PER_BLOCK // ((declared or _MAX_BLOCK_THREADS) * blocks) // _REGISTER_UNIT * _REGISTER_UNIT
    if declared and function.min_blocks:
        limit = None
    limit = function.max_registers or limit or _MAX_REGISTERS
    return max(_MIN_REGISTERS, min(_MAX_REGISTERS, room, limit, word_count // 3))


def align_up(value: int, align: int) -> int:
    return (value + align - 1) // align * align


def reserved_shared(functions: list[ir.Function]) -> int:
    """Bytes of shared memory, from offset 0, that are the system's: cooperative_groups keeps barriers there."""
    return RESERVED_SHARED_NBYTES if any(function.reserved_shared for function in functions) else 0


def shared_layout(module: PtxModule, functions: list[ir.Function]) -> tuple[dict[str, int], int]:
    """Offsets of the shared variables that `functions` mention, and the static size; dynamic memory follows it, at
    offset size, 16-byte aligned. Keys of function-scope variables are (function, variable) joined by a colon. The
    system's part, if they ask for it, comes first and counts."""
    offsets: dict[str, int] = {}
    size = reserved_shared(functions)
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


def _initial_bytes(decl: Declaration) -> tuple[bytes, list[tuple[int, str, int]]]:
    data, relocations = bytearray(), []
    unit = ir.type_nbytes(decl.type)
    for value in decl.initializer or []:
        match value:
            case ir.Imm():
                data += (value.value & ((1 << unit * 8) - 1)).to_bytes(unit, "little")
            case ir.FloatImm():
                bits = value.bits
                if decl.type == "f32" and value.nbits == 64:
                    bits = ir.narrow_float(bits)
                data += bits.to_bytes(max(unit, value.nbits // 8), "little")[:unit]
            case ir.Symbol() if unit in (1, 8):
                relocations.append((len(data), value.name, value.offset))
                data += bytes(8)
            case _:
                raise PtxError(f"initializer of {decl.name} is not supported", NOT_SUPPORTED)
    return bytes(data), relocations
