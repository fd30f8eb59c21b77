"""CUDA's enumerations from protocol/data/enums.tsv: vgw_enums.h for C, vgpusim/_gen/enums.py for Python."""

from __future__ import annotations

from itertools import groupby

from protocol.gen.emit_records import BANNER
from protocol.gen.load import ROOT
from protocol.gen.model import SpecError

# For each enumeration: the prefix of its names in C, and its class in Python.
PREFIXES = {
    "CUdevice_attribute": ("CU_DEVICE_ATTRIBUTE_", "DeviceAttribute"),
    "CUlimit": ("CU_LIMIT_", "ContextLimit"),
    "CUpointer_attribute": ("CU_POINTER_ATTRIBUTE_", "PointerAttribute"),
}

Enums = dict[str, list[tuple[int, str]]]


def load() -> Enums:
    rows = [line.split("\t") for line in (ROOT / "data/enums.tsv").read_text().splitlines() if line[0] != "#"]
    enums: Enums = {}
    for name, members in groupby(rows, lambda row: row[0]):
        enums[name] = [(int(number), member) for _, number, member in members]
        if len({number for number, _ in enums[name]}) != len(enums[name]):
            raise SpecError(f"{name}: one number twice in enums.tsv")
    if set(enums) != set(PREFIXES):
        raise SpecError(f"enums.tsv: enumerations are {sorted(PREFIXES)}")
    return enums


def emit_header(enums: Enums) -> str:
    out = [BANNER, "#ifndef VGW_ENUMS_H\n#define VGW_ENUMS_H\n"]
    for name, members in enums.items():
        prefix, _ = PREFIXES[name]
        rows = "".join(f"  {prefix}{member} = {number},\n" for number, member in members)
        out.append(f"\nenum {{ /* {name} */\n{rows}}};\n")
    return "".join(out) + "\n#endif\n"


def emit_python(enums: Enums) -> str:
    out = ['"""Generated from protocol/data/enums.tsv by protocol/gen; do not edit."""\n\nfrom enum import IntEnum\n']
    for name, members in enums.items():
        rows = "".join(f"    {member} = {number}\n" for number, member in members)
        out.append(f'\n\nclass {PREFIXES[name][1]}(IntEnum):\n    """{name}."""\n\n{rows}')
    return "".join(out)
