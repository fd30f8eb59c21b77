"""The compiler's view of PTX: typed operands, instructions, functions. No pass adds text to it; names are resolved."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vgpusim.ptx.declaration import Declaration

TYPE_NBITS: dict[str, int] = {
    "pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16, "b32": 32, "u32": 32,
    "s32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32, "tf32": 32, "b64": 64, "u64": 64,
    "s64": 64, "f64": 64, "f32x2": 64, "b128": 128,
}  # fmt: skip

CLUSTER_BARRIER = 16  # after a CTA's barriers 0..15: where its warps wait for the cluster


def type_nbytes(name: str) -> int:
    """Size of a PTX type in memory; a predicate has none and counts 1."""
    return max(1, TYPE_NBITS[name] // 8)


class Reg(NamedTuple):  # hashed more often than anything else
    """A register, unique in its function (a name declared in two scopes gives two registers)."""

    name: str
    type: str

    @property
    def nbits(self) -> int:
        return TYPE_NBITS[self.type]


@dataclass(frozen=True, slots=True)
class Imm:
    """An integer constant, taken modulo the width of its use."""

    value: int


@dataclass(frozen=True, slots=True)
class FloatImm:
    """A floating-point constant by its bits; decimal literals are f64 and are narrowed at their use."""

    bits: int
    nbits: int


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, with its percent sign and component: %tid.x."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable plus a constant, or of a function."""

    name: str
    offset: int = 0


Scalar = Reg | Imm | FloatImm | Special | Symbol


@dataclass(frozen=True, slots=True)
class Address:
    base: Scalar
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Not:
    """A negated predicate source: !%p."""

    operand: Reg


@dataclass(frozen=True, slots=True)
class Vector:
    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two destinations, d|p. Either may be None: the sink `_`."""

    first: Reg | None
    second: Reg | None


@dataclass(frozen=True, slots=True)
class Sink:
    """The bit bucket `_`."""


@dataclass(frozen=True, slots=True)
class Name:
    """A label, function or prototype name: whatever is not a value."""

    name: str


def narrow_float(bits: int) -> int:
    """The bits of an f64 as an f32, to nearest even; what is too large becomes infinite."""
    (value,) = struct.unpack("<d", bits.to_bytes(8, "little"))
    try:
        return int.from_bytes(struct.pack("<f", value), "little")
    except OverflowError:
        return 0xFF800000 if value < 0 else 0x7F800000


Operand = Reg | Imm | FloatImm | Special | Symbol | Address | Not | Vector | Pair | Sink | Name


@dataclass(slots=True)
class Instruction:
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    line: int
    guard: Reg | None = None
    guard_negated: bool = False
    source: str = ""  # file:line of .loc

    @property
    def text(self) -> str:
        """Opcode and modifiers as written."""
        return ".".join((self.opcode, *self.modifiers))

    @property
    def type(self) -> str:
        """The last modifier that is a type: what most instructions operate on. Empty when there is none."""
        for name in reversed(self.modifiers):
            if name in TYPE_NBITS:
                return name
        return ""

    def has(self, *names: str) -> bool:
        modifiers = self.modifiers
        for name in names:  # noqa: SIM110  (asked often: a generator would take twice the time)
            if name in modifiers:
                return True
        return False

    def one_of(self, *names: str) -> str | None:
        """The first modifier that is among `names`."""
        return next((m for m in self.modifiers if m in names), None)


@dataclass(slots=True)
class Label:
    name: str
    line: int


@dataclass(slots=True)
class LocalVariable:
    """A variable of a function: .shared, .local or .param, by its unique name."""

    name: str
    space: str
    nbytes: int
    align: int


@dataclass(slots=True)
class Parameter:
    name: str
    type: str
    nbytes: int
    align: int
    register: Reg | None = None  # a .reg parameter of a .func


@dataclass(frozen=True, slots=True)
class Prototype:
    """What a call through a pointer may reach: functions with results and parameters of these sizes in bytes, or, of
    .calltargets, functions by name."""

    returns: tuple[int, ...]
    params: tuple[int, ...]
    targets: tuple[str, ...] | None = None


@dataclass(slots=True)
class Function:
    name: str
    is_entry: bool
    params: list[Parameter]
    returns: list[Parameter]
    body: list[Instruction | Label] = field(default_factory=list)
    variables: dict[str, LocalVariable] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    symbols: set[str] = field(default_factory=set)  # module-scope names the body mentions
    addresses: set[str] = field(default_factory=set)  # those of them that are not just called
    globals: list[Declaration] = field(default_factory=list)  # .global and .const variables, by names of the module
    prototypes: dict[str, Prototype] = field(default_factory=dict)  # by label
    reserved_shared: bool = False  # the body uses the system's part of shared memory
    max_threads: int | None = None
    required_block: tuple[int, int, int] | None = None
    max_registers: int | None = None  # of a thread
    min_blocks: int | None = None  # on a multiprocessor at once
    cluster: tuple[int, int, int] | None = None  # CTAs of a cluster, where the entry requires several

    @property
    def prototype(self) -> Prototype:
        return Prototype(tuple(p.nbytes for p in self.returns), tuple(p.nbytes for p in self.params))


def registers_of(operand: Operand | None) -> list[Reg]:
    """Every register an operand mentions."""
    match operand:
        case Reg():
            return [operand]
        case Address():
            return [operand.base] if isinstance(operand.base, Reg) else []
        case Not():
            return [operand.operand]
        case Vector():
            return [reg for item in operand.items for reg in registers_of(item)]
        case Pair():
            return [reg for reg in (operand.first, operand.second) if reg is not None]
    return []


_NO_DESTINATION = frozenset(
    [
        "st",
        "sust",
        "red",
        "bra",
        "brx",
        "ret",
        "exit",
        "trap",
        "brkpt",
        "bar",
        "barrier",
        "membar",
        "fence",
        "nanosleep",
        "prefetch",
        "prefetchu",
        "discard",
        "applypriority",
        "cp",
        "tensormap",
        "griddepcontrol",
        "stmatrix",
        "pmevent",
        "call",
        "setmaxnreg",
        "unset begin",
        "unset use",
        "unset store",
    ]
)


def has_destination(ins: Instruction) -> bool:
    if ins.opcode in ("bar", "barrier"):
        return "red" in ins.modifiers
    if ins.opcode == "mbarrier":
        return not isinstance(ins.operands[0], Address)
    if ins.opcode == "wgmma":
        return ins.modifiers[:1] == ("mma_async",)
    if ins.opcode == "multimem":
        return "ld_reduce" in ins.modifiers
    if ins.opcode == "wmma":
        return "store" not in ins.modifiers
    return ins.opcode not in _NO_DESTINATION and bool(ins.operands)


def defined(ins: Instruction) -> list[Reg]:
    """Registers an instruction writes."""
    if ins.opcode == "call":
        return registers_of(ins.operands[0])
    return registers_of(ins.operands[0]) if has_destination(ins) else []


def used(ins: Instruction) -> list[Reg]:
    """Registers an instruction reads, its guard included."""
    both = ins.opcode == "wgmma"  # its accumulator is read, too
    sources = ins.operands[1:] if (has_destination(ins) and not both) or ins.opcode == "call" else ins.operands
    regs = [reg for operand in sources for reg in registers_of(operand)]
    if ins.guard is not None:
        regs.append(ins.guard)
    return regs
