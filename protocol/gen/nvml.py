"""What a function of NVML is: its parameters, and where its answer comes from.

Parameters are written in one string, separated by blanks, each `name:type` (`device` alone: `device:device`):

    device              nvmlDevice_t, checked          int, long           32 and 64 bits, given by the caller
    unit gi ci          handles of things no guest     int*, long*         the same, written
                        has: INVALID_ARGUMENT          text                char * and the unsigned length that follows
    vgpu                likewise, but NOT_FOUND        cstr                const char *, given
    T*                  struct T, written              text96              char[96] without a length
    T@VERSION           versioned struct T: its first word is checked; +N: the N words after it are given by the caller
    T[], int[], long[]  unsigned *count (capacity, then number) and the items that follow
    ptr, ptr?           any other pointer; ? may be NULL
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from protocol.gen.model import SpecError

ROOT = Path(__file__).resolve().parent.parent
STRUCT_NBYTES_MASK = 0xFFFFFF  # a version word is size | version << 24

SCALARS = {"u8": ("unsigned char", "B", 1), "char": ("char", "s", 1), "u32": ("unsigned int", "I", 4)} | {
    "u64": ("unsigned long long", "Q", 8)
}


class Source(Enum):
    """The source of the answer."""

    SNAPSHOT = "snapshot"  # sent once, at nvmlInit
    LIVE = "live"  # asked of vgpud at each call, unless the snapshot says that it never has an answer
    LOCAL = "local"  # a hand-written body in shim/nvml
    NONE = "none"  # NOT_SUPPORTED once the arguments have been checked


class Role(Enum):
    DEVICE = "DEVICE"
    ABSENT = "ABSENT"  # a handle of something no guest has: INVALID_ARGUMENT
    ABSENT_VGPU = "ABSENT_VGPU"  # NOT_FOUND
    GIVEN = "GIVEN"
    WRITTEN = "WRITTEN"
    TEXT = "TEXT"
    LENGTH = "LENGTH"
    FIXED_TEXT = "FIXED_TEXT"
    STRUCT = "STRUCT"
    VERSIONED = "VERSIONED"
    COUNT = "COUNT"
    ITEMS = "ITEMS"
    POINTER = "POINTER"
    OPTIONAL = "OPTIONAL"


@dataclass(frozen=True)
class Struct:
    """A struct as declared in the specification: fields in order, with natural alignment."""

    name: str
    fields: tuple[tuple[str, str, int], ...]  # name, scalar, count (0: not an array)

    def layout(self) -> tuple[str, int]:
        """Python's struct format with explicit padding, and the size in bytes."""
        text, offset, widest = "<", 0, 1
        for _, scalar, count in self.fields:
            _, code, nbytes = SCALARS[scalar]
            padding = -offset % nbytes
            text += "x" * padding + (f"{count}s" if scalar in ("char", "u8") and count else (str(count or "") + code))
            offset += padding + nbytes * (count or 1)
            widest = max(widest, nbytes)
        padding = -offset % widest
        return text + "x" * padding, offset + padding


@dataclass(frozen=True)
class Param:
    """One C parameter."""

    name: str
    role: Role
    c: str
    nbytes: int = 0  # of a scalar, struct, item or fixed text
    struct: str = ""
    versions: tuple[int, ...] = ()
    inputs: int = 0  # words after the version that the caller gives


@dataclass
class NvmlFunction:
    name: str
    params: list[Param]
    source: Source
    domain: int = 0  # each integer argument is below this; the snapshot enumerates them
    needs_init: bool = True
    body: str = ""  # for a local function: the function whose body serves it
    refusal: int = 3  # for a function without an answer: what it returns
    returns: str = "nvmlReturn_t"
    asked: list[Param] = field(default_factory=list)  # for a local function: the question that its body asks vgpud


@dataclass
class NvmlApi:
    functions: list[NvmlFunction] = field(default_factory=list)
    structs: dict[str, Struct] = field(default_factory=dict)
    exports: list[str] = field(default_factory=list)


NOT_SUPPORTED, INVALID_ARGUMENT, NOT_FOUND = 3, 2, 6

SNAPSHOT, LIVE, LOCAL = Source.SNAPSHOT, Source.LIVE, Source.LOCAL
_api = NvmlApi()


def struct(name: str, fields: str) -> None:
    """Declare a struct: `name:scalar` or `name:scalar[count]`, separated by blanks."""
    parsed = []
    for text in fields.split():
        label, _, kind = text.partition(":")
        scalar, _, count = kind.rstrip("]").partition("[")
        if scalar not in SCALARS:
            raise SpecError(f"{name}.{label}: no such scalar {scalar!r}")
        parsed.append((label, scalar, int(count or 0)))
    if name in _api.structs:
        raise SpecError(f"{name}: declared twice")
    _api.structs[name] = Struct(name, tuple(parsed))


def fn(
    name: str,
    params: str = "",
    source: Source = Source.NONE,
    *,
    domain: int = 0,
    needs_init: bool = True,
    body: str = "",
    refusal: int = NOT_SUPPORTED,
    returns: str = "nvmlReturn_t",
    asks: str = "",
) -> None:
    """Describe one function. Without a source it has no answer but `refusal`.

    `asks`: for a local function whose body asks vgpud, the parameters of that question.
    """
    parsed = [p for text in params.split() for p in _parse(name, text)]
    if len({p.name for p in parsed}) != len(parsed):
        raise SpecError(f"{name}: two parameters of one name")
    if source in (SNAPSHOT, LIVE) and any(p.role in (Role.POINTER, Role.OPTIONAL) for p in parsed):
        raise SpecError(f"{name}: an untyped pointer cannot be answered")
    if body and source is not LOCAL:
        raise SpecError(f"{name}: only a local function has a body")
    if asks and source is not LOCAL:
        raise SpecError(f"{name}: only a local function asks a question of its own")
    asked = [p for text in asks.split() for p in _parse(name, text)]
    described = NvmlFunction(name, parsed, source, domain, needs_init, body or name, refusal, returns, asked)
    _api.functions.append(described)


def _parse(function: str, text: str) -> list[Param]:
    name, colon, kind = text.partition(":")
    kind = kind if colon else name
    simple = {
        "device": Param(name, Role.DEVICE, "nvmlDevice_t"),
        "unit": Param(name, Role.ABSENT, "void *"),
        "gi": Param(name, Role.ABSENT, "void *"),
        "ci": Param(name, Role.ABSENT, "void *"),
        "vgputype": Param(name, Role.ABSENT, "unsigned int "),
        "vgpu": Param(name, Role.ABSENT_VGPU, "unsigned int "),
        "int": Param(name, Role.GIVEN, "unsigned int ", 4),
        "long": Param(name, Role.GIVEN, "unsigned long long ", 8),
        "int*": Param(name, Role.WRITTEN, "unsigned int *", 4),
        "long*": Param(name, Role.WRITTEN, "unsigned long long *", 8),
        "cstr": Param(name, Role.POINTER, "const char *"),
        "ptr": Param(name, Role.POINTER, "void *"),
        "ptr?": Param(name, Role.OPTIONAL, "void *"),
    }
    if kind in simple:
        return [simple[kind]]
    if kind == "text":
        return [Param(name, Role.TEXT, "char *"), Param(f"{name}_length", Role.LENGTH, "unsigned int ", 4)]
    if kind.startswith("text"):
        return [Param(name, Role.FIXED_TEXT, "char *", int(kind.removeprefix("text")))]
    if "@" in kind:
        return [_versioned(function, name, *kind.split("@"))]
    if kind in ("int[]", "long[]"):
        scalar = simple[kind.replace("[]", "*")]
        return [
            Param(f"{name}_count", Role.COUNT, "unsigned int *", 4),
            Param(name, Role.ITEMS, scalar.c, scalar.nbytes),
        ]
    declared = _api.structs.get(kind.rstrip("*[]"))
    if declared is None or not kind.endswith(("*", "[]")):
        raise SpecError(f"{function}: {name}: unknown type {kind!r}")
    nbytes = declared.layout()[1]
    if kind.endswith("[]"):
        return [
            Param(f"{name}_count", Role.COUNT, "unsigned int *", 4),
            Param(name, Role.ITEMS, f"{declared.name} *", nbytes, declared.name),
        ]
    return [Param(name, Role.STRUCT, f"{declared.name} *", nbytes, declared.name)]


def _versioned(function: str, name: str, kind: str, rest: str) -> Param:
    words, _, inputs = rest.partition("+")
    versions = tuple(int(word, 16) for word in words.split("/"))
    declared = _api.structs.get(kind)
    if declared is not None and versions[0] & STRUCT_NBYTES_MASK != declared.layout()[1]:
        raise SpecError(f"{function}: {kind} has {declared.layout()[1]} bytes, its version says otherwise")
    if len(versions) > 2:
        raise SpecError(f"{function}: {name}: more than two versions")
    c = f"{kind} *" if declared is not None else "void *"
    return Param(name, Role.VERSIONED, c, versions[0] & STRUCT_NBYTES_MASK, kind, versions, int(inputs or 0))


def load() -> NvmlApi:
    """Read the specification, and check that it describes every name NVIDIA's library exports, once, and no other."""
    from protocol import spec_nvml

    _api.functions.clear()
    _api.structs.clear()
    for module in spec_nvml.MODULES:
        name = f"protocol.spec_nvml.{module}"
        sys.modules.pop(name, None)
        importlib.import_module(name)
    exports = (ROOT / "data/nvml-580-exports.txt").read_text().split()
    described = [f.name for f in _api.functions]
    for name in described:
        if described.count(name) > 1:
            raise SpecError(f"{name}: described twice")
        if name not in exports:
            raise SpecError(f"{name}: NVIDIA's library exports no such name")
    for name in exports:
        if name not in described:
            raise SpecError(f"{name}: not described")
    return NvmlApi(sorted(_api.functions, key=lambda f: f.name), dict(_api.structs), exports)
