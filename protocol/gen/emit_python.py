"""vgpud/_gen/api.py: the API as data, for `vgpu api`, the record decoder and the fuzz seeds."""

from __future__ import annotations

import re

from protocol.gen.emit_guest import SUFFIXES
from protocol.gen.emit_records import part_in, parts_out, reply_fields, request_fields
from protocol.gen.load import ROOT, Api
from protocol.gen.model import Function, Need, Param, Role, SpecError

_WIRE = ROOT / "c/vgw_wire.h"
_FORMATS = {"uint32_t": "I", "uint16_t": "H"}

HEADER = '''"""Generated from protocol/spec by protocol/gen; do not edit."""

from itertools import starmap
from struct import Struct
from typing import NamedTuple


class Record(NamedTuple):
    """One function that travels: its opcode, (C type, name) of its fixed fields, and its variable parts.

    `meanings` says what a fixed field is, where it is not a plain number: ("uses", kind), ("creates", kind),
    ("destroys", kind), ("device", ""), ("kernel kind", "") or ("kernel", ""), or ("length", part).
    A part is (name, what is in it, the largest length or count, field that says it), a reply's part likewise.
    """

    name: str
    opcode: int
    waits: bool
    request: tuple[tuple[str, str], ...]
    meanings: dict[str, tuple[str, str]]
    parts: tuple[tuple[str, str, int, str], ...]
    reply: tuple[tuple[str, str], ...]
    reply_parts: tuple[tuple[str, str, int, str], ...]
    needs_context: bool
    simulator: bool


class Entry(NamedTuple):
    """One exported name. `travel` is local, queued, waiting, or not implemented.

    `since`: the CUDA version from which drivers have it, 12030 for 12.3; 0: not known. `by_hand`: the halves of a
    travelling function that are hand-written. `simulator`: a simulated device answers it.
    """

    name: str
    travel: str
    module: str
    doc: str
    since: int
    by_hand: tuple[str, ...]
    simulator: bool


'''


def _row(values: object) -> str:
    return f"    {values!r},\n"


def _meanings(f: Function) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for p in f.sent:
        if p.role is Role.HANDLE and p.kind:
            found[p.name] = ("destroys" if p.ends else "uses", p.kind.name)
        elif p.role is Role.OUT_HANDLE and p.kind:
            found[p.name] = ("creates", p.kind.name)
        elif p.role is Role.FUNCTION:
            found |= {"kind": ("kernel kind", ""), "object": ("kernel", "")}
        elif p.role is Role.VALUE and p.scalar and p.scalar.c == "CUdevice":
            found[p.name] = ("device", "")
    for p in (*part_in(f), *parts_out(f)):
        found[_length_field(p)] = ("length", p.name)
    return found


def _length_field(p: Param) -> str:
    return f"{p.name}_nbytes" if p.role is Role.TEXT_IN else p.size


def _part(p: Param) -> tuple[str, str, int, str]:
    what = {Role.TEXT_IN: "text", Role.BYTES_IN: "bytes", Role.BYTES_OUT: "bytes"}.get(p.role, p.element)
    return (p.name, p.kind.name if p.kind else what, p.cap, _length_field(p))


def header(wire: str) -> list[str]:
    """A record's header, and the flags of a request, from the C header that both sides include."""
    header = re.search(r"struct vgw_header \{(.*?)\n\};", wire, re.DOTALL)
    flags = re.search(r"enum \{ (VGW_WANT_REPLY = .*?) \};", wire)
    if not header or not flags:
        raise SpecError(f"{_WIRE.name}: struct vgw_header or the flags of requests not found")
    members = re.findall(r"^  (\w+) (\w+);", header[1], re.MULTILINE)
    layout = "<" + "".join(_FORMATS[c] for c, _ in members)
    return [
        f"# struct vgw_header of {_WIRE.name} ({', '.join(name for _, name in members)}), and flags of requests.\n",
        f'HEADER = Struct("{layout}")\n',
        *(f"{name} = {value}\n" for name, value in re.findall(r"VGW_(\w+) = (\d+)", flags[1])),
        "\n",
    ]


def emit(api: Api) -> str:
    bodies = api.implementation()
    out = [HEADER, *header(_WIRE.read_text()), "RECORDS: tuple[Record, ...] = tuple(starmap(Record, (\n"]
    for f in api.travelling():
        row = (
            f.name,
            f.opcode,
            f.travel.value == "waiting",
            tuple(request_fields(f)),
            _meanings(f),
            tuple(_part(p) for p in part_in(f)),
            tuple(reply_fields(f)),
            tuple(_part(p) for p in parts_out(f)),
            f.need is Need.CONTEXT,
            f.simulator,
        )
        out.append(_row(row))
    out.append(")))\n\nENTRIES: tuple[Entry, ...] = tuple(starmap(Entry, (\n")
    for name in api.exports:
        base = next((name[: -len(s)] for s in SUFFIXES if name.endswith(s)), name)
        body = bodies.get(name) or bodies.get(base)
        row2 = (
            (name, body.travel.value, body.module, body.doc, body.since, tuple(body.hand_written), body.simulator)
            if body
            else (name, "not implemented", "", "", 0, (), False)
        )
        out.append(_row(row2))
    out.append(")))\n\nKINDS: dict[str, int] = {\n")
    out += [f'    "{k.name}": {k.code},\n' for k in api.kinds]
    out.append("}\n\n# By the numbers of enum vgw_quota, from 1.\n")
    out.append(f"QUOTAS: tuple[str, ...] = {api.quotas!r}\n")
    out.append(f"OBJECT_QUOTAS: frozenset[str] = frozenset({sorted({k.quota for k in api.kinds} - {''})!r})\n")
    named = {group: tuple(f.name for f in api.travelling() if f.group == group) for group in api.groups}
    out.append("\n# What a share can be denied, by the numbers of enum vgw_group: the functions of each group.\n")
    out.append(f"GROUPS: dict[str, tuple[str, ...]] = {named!r}\n")
    return "".join(out)
