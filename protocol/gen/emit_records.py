"""vgw_records.h: opcodes, handle kinds, and the fixed part of every record as a C struct."""

from __future__ import annotations

from protocol.gen.load import Api
from protocol.gen.model import ARRAY_OUT_ROLES, IN_PART_ROLES, Function, Param, Role, Turn


def includes(*names: str) -> str:
    """Include lines: <x.h> for the system's names (given with their brackets), "x.h" for the project's."""
    return "".join(f"#include {name if name[0] == '<' else chr(34) + name + chr(34)}\n" for name in names) + "\n"


BANNER = "/* Generated from protocol/spec by protocol/gen; do not edit. */\n"


def request_fields(f: Function) -> list[tuple[str, str]]:
    """(C type, name) of the request's fixed fields: 8-byte ones first, then structs, then 4-byte ones (wire.md)."""
    wide: list[tuple[str, str]] = []
    structs: list[tuple[str, str]] = []
    narrow: list[tuple[str, str]] = []
    for p in f.sent:
        if p.role in (Role.VALUE, Role.WORD_IN):
            assert p.scalar
            (wide if p.scalar.wire == "uint64_t" else narrow).append((p.scalar.wire, p.name))
        elif p.role in (Role.HANDLE, Role.OUT_HANDLE):
            narrow.append(("uint32_t", p.name))
        elif p.role is Role.FUNCTION:
            narrow += [("uint32_t", "kind"), ("uint32_t", "object")]
        elif p.role is Role.COUNT:
            wide.append(("uint64_t", p.name))
        elif p.role in (Role.STRUCT_IN, Role.STRUCT_VALUE):
            structs.append((p.element, p.name))
        elif p.role is Role.TEXT_IN:
            narrow.append(("uint32_t", f"{p.name}_nbytes"))
    return wide + structs + narrow


def reply_fields(f: Function) -> list[tuple[str, str]]:
    wide: list[tuple[str, str]] = []
    narrow: list[tuple[str, str]] = []
    for p in f.sent:
        if p.role in (Role.OUT, Role.WORD_OUT):
            assert p.scalar
            (wide if p.scalar.wire == "uint64_t" else narrow).append((p.scalar.wire, p.name))
        elif p.role is Role.COUNT:
            wide.append(("uint64_t", p.name))
        elif p.role is Role.FOUND:
            narrow.append(("uint32_t", p.name))
        elif p.role is Role.STRUCT_OUT:
            wide.append((p.element, p.name))
    return wide + narrow


def part_in(f: Function) -> list[Param]:
    return [p for p in f.sent if p.role in IN_PART_ROLES]


def part_nbytes(f: Function, p: Param, prefix: str) -> str:
    """C for the length of a variable part; `prefix`: put before the name of the length parameter."""
    if p.role is Role.TEXT_IN:
        return f"{prefix}{p.name}_nbytes"
    size = f"(uint64_t){prefix}{p.size}"
    return size if p.role in (Role.BYTES_IN, Role.BYTES_OUT) else f"{size} * {element_nbytes(p)}"


def element_nbytes(p: Param) -> str:
    return "sizeof(uint32_t)" if p.role in (Role.HANDLES_IN, Role.HANDLES_OUT) else f"sizeof({p.element})"


def parts_out(f: Function) -> list[Param]:
    """The variable results: one of bytes, or arrays, each with room for as many elements as the client asked for."""
    return [p for p in f.sent if p.role is Role.BYTES_OUT or p.role in ARRAY_OUT_ROLES]


def part_out(f: Function) -> Param | None:
    return next((p for p in f.sent if p.role is Role.BYTES_OUT), None)


def _struct(name: str, fields: list[tuple[str, str]]) -> str:
    if not fields:
        return ""
    lines = [f"  {c} {field};" for c, field in fields]
    return f"struct {name} {{\n" + "\n".join(lines) + "\n} __attribute__((aligned(8)));\n"


def emit(api: Api) -> str:
    out = [
        BANNER,
        '#ifndef VGW_RECORDS_H\n#define VGW_RECORDS_H\n\n#include <stdint.h>\n\n#include "vgw_cuda.h"\n\n',
        "enum vgw_kind {\n",
        *(f"  VGW_KIND_{k.name} = {k.code},\n" for k in api.kinds),
        f"  VGW_KIND_COUNT = {max(k.code for k in api.kinds) + 1},\n}};\n\n",
        "enum vgw_quota {\n  VGW_QUOTA_NONE,\n",
        *(f"  VGW_QUOTA_{name.upper()},\n" for name in api.quotas),
        "  VGW_QUOTA_COUNT,\n};\n\n",
        "enum vgw_group {\n",
        *(f"  VGW_GROUP_{name.upper()},\n" for name in api.groups),
        "  VGW_GROUP_COUNT,\n};\n\n",
        "enum vgw_opcode {\n",
        *(f"  VGW_OP_{f.name} = {f.opcode},\n" for f in api.travelling()),
        f"  VGW_OP_COUNT = {max(f.opcode for f in api.travelling()) + 1},\n}};\n\n",
    ]
    out.append("enum vgw_turn {\n" + "".join(f"  VGW_{turn.name},\n" for turn in Turn) + "};\n\n")
    out.append("/* When the worker executes a record of the socket while it reads ahead. */\n")
    out.append("static inline enum vgw_turn vgw_turn_of(uint16_t opcode) {\n  switch (opcode) {\n")
    for turn in (Turn.OVERTAKES, Turn.ASKS):
        out += [f"  case VGW_OP_{f.name}:\n" for f in api.travelling() if f.turn is turn]
        out.append(f"    return VGW_{turn.name};\n")
    out.append(f"  default:\n    return VGW_{Turn.IN_TURN.name};\n  }}\n}}\n\n")
    for f in api.travelling():
        for text in (_struct(f"vgw_req_{f.name}", request_fields(f)), _struct(f"vgw_rep_{f.name}", reply_fields(f))):
            if text:
                out.append(text + "\n")
    out.append("#endif\n")
    return "".join(out)
