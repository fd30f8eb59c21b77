"""Records for the dispatcher, from the description: for each function a valid record and all with one fault."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vgpud._gen.api import KINDS, RECORDS, Record

from protocol.gen.load import ROOT as PROTOCOL
from protocol.gen.load import Api
from tests.protocol import conditions, stubs

ROOT = PROTOCOL.parent
HERE = Path(__file__).parent
LIVE, GONE, NEVER, ELSEWHERE, TAKEN = 1, 2, 60000, 4, 5
HUGE = [1 << 22, 1 << 22 | LIVE, (1 << 32) - 1]  # an id has 22 bits
VIOLATION, INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE, NOT_FOUND, NOT_SUPPORTED = -1, 1, 201, 400, 500, 801
NOT_PERMITTED = 800
WIDTHS = {"uint64_t": 8, "uint32_t": 4, "int32_t": 4, "float": 4}
TEXT_NBYTES = 4096  # vgx_session.h


EXECUTOR = (
    "vgx_session.c",
    "vgx_execute.c",
    "vgx_meter.c",
    "vgx_recording.c",
    "vgx_handle.c",
    "vgx_handle_end.c",
    "vgx_quota.c",
    "vgx_policy.c",
    "vgx_gate.c",
    "vgx_turn.c",
)


def compile_parts(api: Api, folder: Path) -> dict[str, Path]:
    """Compile the generated dispatcher, the executor's handle table and stubs for the rest; objects by source name."""
    stub = folder / "stubs.c"
    stub.write_text(stubs.emit(api))
    (folder / "guard.h").write_text(
        "extern int vgt_mutant;\n#define VGX_GUARD(condition) (vgt_mutant != __COUNTER__ && (condition))\n"
        "#define VGX_OPERATIONS\n"
    )
    executor = [ROOT / "daemon/executor" / name for name in EXECUTOR]
    sources = [ROOT / "build/gen/vgx_dispatch.c", HERE / "vgt_dispatch.c", stub, *executor]
    return {source.name: compile_part(source, folder) for source in sources}


def compile_part(source: Path, folder: Path) -> Path:
    made = folder / f"{source.stem}.o"
    includes = [f"-I{ROOT / name}" for name in ("daemon/executor", "protocol/c", "build/gen", "tests/protocol")]
    flags = ["-std=gnu11", "-O1", "-fPIC", *includes, "-include", str(folder / "guard.h")]
    subprocess.run([os.environ.get("CC", "gcc"), *flags, "-c", str(source), "-o", str(made)], check=True)
    return made


def link(parts: dict[str, Path], library: Path) -> Path:
    flags = ["-shared", "-Wl,--wrap=calloc", "-o", str(library), *map(str, parts.values()), "-lpthread"]
    subprocess.run([os.environ.get("CC", "gcc"), *flags], check=True)
    return library


class Dispatcher:
    """The compiled library, loaded, with objects of each kind whose ids are LIVE, GONE (destroyed) and TAKEN."""

    def __init__(self, library: Path) -> None:
        self.lib = ctypes.CDLL(str(library))
        self.lib.vgt_reached.restype = self.lib.vgt_violation.restype = ctypes.c_char_p
        self.lib.vgt_begin()
        for code in KINDS.values():
            assert self.lib.vgt_make(code, LIVE, 0)
            assert self.lib.vgt_make(code, GONE, 1)
            assert self.lib.vgt_make(code, TAKEN, 0)
        for node in (conditions.WHOLE_COPY, conditions.SPLIT):
            assert self.lib.vgt_make(KINDS["GRAPH_NODE"], node, 0)
        assert self.lib.vgt_make(KINDS["GRAPH"], conditions.INSIDE, 0)
        self.fresh = 100
        self.elsewhere: dict[str, int] = {}

    def new_id(self) -> int:
        self.fresh += 1
        return self.fresh

    def new_object(self, kind: str) -> int:
        made = self.new_id()
        assert self.lib.vgt_make(KINDS[kind], made, 0)
        return made

    def id_elsewhere(self, kind: str) -> int:
        """An id that has an object of every kind except `kind`."""
        if kind not in self.elsewhere:
            self.elsewhere[kind] = self.new_id()
            for name, code in KINDS.items():
                if name != kind:
                    assert self.lib.vgt_make(code, self.elsewhere[kind], 0)
        return self.elsewhere[kind]


@dataclass
class Case:
    """A record and its expected outcome."""

    record: Record
    what: str
    fields: dict[str, int] = field(default_factory=dict)
    parts: dict[str, bytes] = field(default_factory=dict)
    cut: int = 0  # number of bytes that are missing at the end
    context: int = LIVE
    expected: tuple[int, ...] = (0,)
    offered: bool = True
    descriptor: bool = True
    denied: bool = False  # the session is denied all groups of functions
    member: str = ""  # the backend's function to which `offered` applies
    reaches: bool | None = None  # whether a stub is called; None: if 0 is expected
    lives: tuple[str, int] | None = None  # a kind and an id that must have an object afterwards

    def encode(self) -> bytes:
        fixed = bytearray()
        for c, name in self.record.request:
            value = self.fields.get(name, 0)
            width = WIDTHS.get(c) or SIZES[c]
            if width in (4, 8):
                fixed += bytes(-len(fixed) % width)
            fixed += (value % (1 << 8 * width)).to_bytes(width, "little")
        body = bytes(fixed) + bytes(-len(fixed) % 8)
        for name, *_ in self.record.parts:
            body += self.parts[name] + bytes(-len(self.parts[name]) % 8)
        body = body[: len(body) - self.cut]
        head = (16 + len(body)).to_bytes(4, "little") + self.record.opcode.to_bytes(2, "little")
        return head + bytes(6) + self.context.to_bytes(4, "little") + body

    def fault(self, dispatcher: Dispatcher) -> str:
        """What is wrong with the dispatcher's result for this record; empty: nothing."""
        lib, name = dispatcher.lib, self.record.name
        lib.vgt_descriptors(1 if self.descriptor else 0)
        lib.vgt_offer(self.member.encode(), self.offered)
        lib.vgt_deny_all(self.denied)
        data = self.encode()
        result = lib.vgt_execute(data, len(data))
        lib.vgt_offer(self.member.encode(), 1)
        lib.vgt_deny_all(False)
        reached = lib.vgt_reached().decode()
        if result not in self.expected:
            return f"{name}, {self.what}: {result} ({lib.vgt_violation().decode()}), not {self.expected}"
        if bool(reached) != ((0 in self.expected) if self.reaches is None else self.reaches):
            return f"{name}, {self.what}: {reached or 'nothing'} was called"
        if self.lives and not lib.vgt_is_live(KINDS[self.lives[0]], self.lives[1]):
            return f"{name}, {self.what}: what it has made has no id"
        return ""


SIZES = {
    "CUipcMemHandle": 64,
    "CUmemPoolPtrExportData": 64,
    "CUipcEventHandle": 64,
    "CUDA_ARRAY3D_DESCRIPTOR": 40,
    "CUDA_RESOURCE_DESC": 144,
    "CUDA_TEXTURE_DESC": 104,
    "CUDA_RESOURCE_VIEW_DESC": 112,
    "CUmemPoolProps": 88,
    "CUmemAllocationProp": 32,
    "CUmemLocation": 8,
    "CUDA_MEMSET_NODE_PARAMS": 40,
    "CUmemAccessDesc": 12,
    "CUlaunchAttributeValue": 64,
    "CUstreamBatchMemOpParams": 48,
    "CUDA_MEMCPY3D": 200,
    "CUgraphEdgeData": 8,
    "CUdevResource": 144,
    "int": 4,
    "unsigned int": 4,
    "CUexecAffinityParam": 8,
    "CUDA_ARRAY_DESCRIPTOR": 24,
    "CUtexrefBorderColor": 16,
    "CUarrayMapInfo": 96,
    "CUmemDecompressParams": 64,
}
HANDLE_AT = {"CUarrayMapInfo": 8}  # structs with the handle of an object that must exist: its offset in bytes
OPTIONAL_AT = {"CUarrayMapInfo": 64}  # and of one that may be missing


def element_nbytes(what: str) -> int:
    return 4 if what in KINDS else SIZES[what]


def _elements(what: str, handle: int) -> bytes:
    """Four structs; the first three have a live object's handle, where they have one, and the last has `handle`."""
    if (at := HANDLE_AT.get(what)) is None:
        return bytes(4 * element_nbytes(what))
    rest = element_nbytes(what) - at - 8
    return b"".join(bytes(at) + n.to_bytes(8, "little") + bytes(rest) for n in (LIVE, LIVE, LIVE, handle))


def fill(record: Record, dispatcher: Dispatcher) -> dict[str, Any]:
    """The fields and parts of a valid record."""
    fields: dict[str, int] = dict(conditions.RIGHT.get(record.name, {}))
    parts: dict[str, bytes] = {}
    for field_name, (meaning, kind) in record.meanings.items():
        if meaning == "uses":
            fields[field_name] = LIVE
        elif meaning == "creates":
            fields[field_name] = dispatcher.new_id()
        elif meaning == "destroys":
            fields[field_name] = dispatcher.new_object(kind)
        elif meaning == "kernel kind":
            fields[field_name] = KINDS["FUNCTION"]
        elif meaning == "kernel":
            fields[field_name] = LIVE
        elif meaning == "length":
            fields[field_name] = 4
    for name, what, _, _ in record.parts:
        parts[name] = b"name" if what == "text" else bytes(4) if what == "bytes" else b""
        if what in KINDS:
            parts[name] = LIVE.to_bytes(4, "little") * 4
        elif what not in ("text", "bytes"):
            parts[name] = _elements(what, LIVE)
    return {"fields": fields, "parts": parts}


def cases(record: Record, api: Api, dispatcher: Dispatcher) -> Iterator[Case]:
    """All cases of one function."""

    def case(
        what: str, changes: dict[str, int] | None = None, parts: dict[str, bytes] | None = None, **rest: Any
    ) -> Case:
        given = fill(record, dispatcher)
        given["fields"] |= conditions.following(record.name, changes or {}) | (changes or {})
        given["parts"] |= parts or {}
        return Case(record, what, **given, **rest)

    function = next(f for f in api.functions if f.name == record.name)

    def made(each: Case) -> tuple[str, int] | None:
        """The kind and the id of the new object."""
        return next(((k, each.fields[n]) for n, (m, k) in record.meanings.items() if m == "creates"), None)

    right = case("all right")
    right.lives = made(right)
    yield right
    if record.request:
        lengths = {name: 0 for name, (meaning, _) in record.meanings.items() if meaning == "length"}
        yield case("short fixed fields", lengths, dict.fromkeys(right.parts, b""), cut=8, expected=(VIOLATION,))
    if record.needs_context:
        yield case("no context", context=0, expected=(INVALID_CONTEXT,))
        yield case("a context that is gone", context=GONE, expected=(INVALID_CONTEXT,))
        yield case("a context that was never made", context=NEVER, expected=(VIOLATION,))
    if function.member:
        yield case("not offered", member=function.member, offered=False, expected=(NOT_SUPPORTED,))
    denied = case("with all groups denied", denied=True, expected=(NOT_PERMITTED,) if function.group else (0,))
    denied.lives = None if function.group else made(denied)
    yield denied
    if function.descriptor:
        yield case("without its descriptor", descriptor=False, expected=(VIOLATION,))
    for fields, expected, reaches in conditions.WRONG.get(record.name, []):
        yield case(f"with {fields}", fields, expected=(expected,), reaches=reaches)
    yield from _handle_cases(record, api, dispatcher, case)
    yield from _part_cases(record, right, case)


def _handle_cases(record: Record, api: Api, dispatcher: Dispatcher, case: Any) -> Iterator[Case]:
    function = next(f for f in api.functions if f.name == record.name)
    optional = {p.name for p in function.sent if p.optional}
    for name, (meaning, kind) in record.meanings.items():
        if meaning in ("uses", "destroys", "kernel"):
            expected = (
                (0,) if name in optional and meaning == "uses" else (INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE)
            )
            yield case(f"{name} 0", {name: 0}, expected=expected)
            yield case(
                f"{name} gone", {name: GONE}, expected=(INVALID_CONTEXT if kind == "CONTEXT" else INVALID_HANDLE,)
            )
            for wrong in (NEVER, dispatcher.id_elsewhere(kind or "FUNCTION"), *HUGE):
                yield case(f"{name} {wrong}, never made", {name: wrong}, expected=(VIOLATION,))
        if meaning == "kernel kind":
            for wrong in (0, KINDS["STREAM"], 15, 1 << 31):
                yield case(f"{name} {wrong}", {name: wrong}, expected=(VIOLATION,))
        if meaning == "creates":
            for wrong in (TAKEN, GONE, 0, 1 << 21, *HUGE):
                yield case(f"{name} {wrong}, taken or out of range", {name: wrong}, expected=(VIOLATION,))


def _part_cases(record: Record, right: Case, case: Any) -> Iterator[Case]:
    for name, what, cap, length in record.parts:
        nbytes = 1 if what in ("text", "bytes") else element_nbytes(what)
        yield case(f"{name} too long", {length: cap + 1}, {name: bytes((cap + 1) * nbytes)}, expected=(VIOLATION,))
        short = {name: right.parts[name][: 2 * nbytes]} | {other[0]: b"" for other in record.parts if other[0] != name}
        longer = {length: min(cap, 4096)}
        yield case(f"{name} short", longer, short, expected=(VIOLATION,))
        for wrong in _lengths(record, length, 1 << 31):
            yield case(f"{name} of length {wrong}", {length: wrong}, expected=(VIOLATION,))
        if what == "text" and record.name.startswith("cu"):
            yield case(f"{name} with a NUL", parts={name: b"na\0e"}, expected=(NOT_FOUND,))
            text = bytes(TEXT_NBYTES).replace(b"\0", b"x")
            yield case(f"{name} longer than names are", {length: len(text)}, {name: text}, expected=(NOT_FOUND,))
        if what in HANDLE_AT:
            for wrong, expected in (
                (0, INVALID_HANDLE),
                (GONE, INVALID_HANDLE),
                (NEVER, VIOLATION),
                (1 << 32, VIOLATION),
            ):
                yield case(f"{name} with {wrong}", parts={name: _elements(what, wrong)}, expected=(expected,))
            odd, at = bytearray(_elements(what, LIVE)), OPTIONAL_AT[what]
            odd[at : at + 8] = (1 << 32).to_bytes(8, "little")
            yield case(f"{name} with a wide handle", parts={name: bytes(odd)}, expected=(VIOLATION,))
        if what in KINDS:
            for wrong, expected in (
                (0, INVALID_VALUE),
                (GONE, INVALID_HANDLE),
                (NEVER, VIOLATION),
                (HUGE[-1], VIOLATION),
            ):
                ids = [LIVE, LIVE, LIVE, wrong]
                part = b"".join(i.to_bytes(4, "little") for i in ids)
                yield case(f"{name} with {wrong}", parts={name: part}, expected=(expected,))
    for name, what, cap, length in record.reply_parts:
        del what
        for wrong in _lengths(record, length, cap + 1):
            yield case(f"{name}: room for {wrong}", {length: wrong}, expected=(VIOLATION,))


def _lengths(record: Record, length: str, first: int) -> list[int]:
    """Lengths at which unchecked arithmetic would overflow, as far as the field can hold them."""
    width = WIDTHS[next(c for c, name in record.request if name == length)]
    return [n for n in (first, (1 << 32) - 1, 1 << 61, 1 << 62, (1 << 64) - 1) if n < 1 << 8 * width]


def travelling() -> list[Record]:
    return list(RECORDS)
