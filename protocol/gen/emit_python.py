"""vgpud/_gen/api.py: the API as data, for `vgpu api`, the record decoder and the fuzz seeds."""

from __future__ import annotations

from protocol.gen.emit_guest import SUFFIXES
from protocol.gen.emit_records import part_in, part_out, reply_fields, request_fields
from protocol.gen.load import Api

HEADER = '''"""Generated from protocol/spec by protocol/gen; do not edit."""

from typing import NamedTuple


class Record(NamedTuple):
    """One function that travels: its opcode, and (C type, name) of its fixed fields and variable parts."""

    name: str
    opcode: int
    waits: bool
    request: tuple[tuple[str, str], ...]
    parts: tuple[str, ...]
    reply: tuple[tuple[str, str], ...]
    reply_part: str


class Entry(NamedTuple):
    """One exported name. `travel` is local, queued, waiting, or not implemented."""

    name: str
    travel: str
    module: str
    doc: str


'''


def _row(values: object) -> str:
    return f"    {values!r},\n"


def emit(api: Api) -> str:
    bodies = api.implementation()
    out = [HEADER, "RECORDS: tuple[Record, ...] = tuple(Record(*row) for row in (\n"]
    for f in api.travelling():
        tail = part_out(f)
        row = (
            f.name,
            f.opcode,
            f.travel.value == "waiting",
            tuple(request_fields(f)),
            tuple(p.name for p in part_in(f)),
            tuple(reply_fields(f)),
            tail.name if tail else "",
        )
        out.append(_row(row))
    out.append("))\n\nENTRIES: tuple[Entry, ...] = tuple(Entry(*row) for row in (\n")
    for name in api.exports:
        base = next((name[: -len(s)] for s in SUFFIXES if name.endswith(s)), name)
        body = bodies.get(name) or bodies.get(base)
        row2 = (name, body.travel.value, body.module, body.doc) if body else (name, "not implemented", "", "")
        out.append(_row(row2))
    out.append("))\n\nKINDS: dict[str, int] = {\n")
    out += [f'    "{k.name}": {k.code},\n' for k in api.kinds]
    out.append("}\n")
    return "".join(out)
