"""libnvidia-ml's generated half: structs, exported functions, version script; and the same facts for vgpud."""

from __future__ import annotations

from fnmatch import fnmatchcase

from protocol.gen.model import SpecError
from protocol.gen.nvml import SCALARS, NvmlApi, NvmlFunction, Param, Role, Source
from protocol.spec_nvml.absent import REASONS

BANNER = "/* Generated from protocol/spec_nvml; do not edit. */\n"


def _declaration(p: Param) -> str:
    return f"{p.c}{p.name}" if p.c.endswith(("*", " ")) else f"{p.c} {p.name}"


def _declarations(f: NvmlFunction) -> str:
    return ", ".join(_declaration(p) for p in f.params) or "void"


def _prototype(f: NvmlFunction, prefix: str) -> str:
    space = "" if f.returns.endswith("*") else " "
    return f"{f.returns}{space}{prefix}({_declarations(f)})"


def emit_header(api: NvmlApi) -> str:
    out = [BANNER, "#ifndef VGS_NVML_API_H\n#define VGS_NVML_API_H\n\n"]
    out.append("typedef unsigned int nvmlReturn_t;\ntypedef struct nvmlDevice_st *nvmlDevice_t;\n\n")
    for s in api.structs.values():
        out.append(f"typedef struct {s.name.removesuffix('_t')}_st {{\n")
        for label, scalar, count in s.fields:
            out.append(f"  {SCALARS[scalar][0]} {label}{f'[{count}]' if count else ''};\n")
        out.append(f'}} {s.name};\n_Static_assert(sizeof({s.name}) == {s.layout()[1]}, "layout");\n\n')
    out.append("/* Hand-written bodies, in shim/nvml. Arguments come unchecked. */\n")
    for f in api.functions:
        if f.source is Source.LOCAL and f.body == f.name:
            out.append(f"{_prototype(f, f'vgs_{f.name}')};\n")
    out.append("\n/* Rows of vgs_nvml_functions that are questions of such a body. */\nenum {\n")
    for i, f in enumerate(_served(api)):
        if f.asked:
            out.append(f"  VGS_ASK_{f.name} = {i},\n")
    return "".join(out) + "};\n\n#endif\n"


def _row(p: Param) -> str:
    versions = ", ".join(f"0x{v:08x}" for v in (*p.versions, 0, 0)[:2])
    return f"{{VGS_NVML_{p.role.value}, {p.inputs}, {p.nbytes}, {{{versions}}}}}"


def _local(f: NvmlFunction) -> str:
    call = f"vgs_{f.body}({', '.join(p.name for p in f.params)})"
    head = f'__attribute__((visibility("default"))) {_prototype(f, f.name)} {{\n'
    if f.returns != "nvmlReturn_t":
        return f"{head}  return {call};\n}}\n\n"
    if not f.needs_init:
        return f'{head}  return vgs_nvml_done("{f.name}", {call});\n}}\n\n'
    return (
        f"{head}  nvmlReturn_t result = vgs_nvml_enter();\n  if (!result) {{\n    result = {call};\n"
        f'    vgs_nvml_leave();\n  }}\n  return vgs_nvml_done("{f.name}", result);\n}}\n\n'
    )


def _served(api: NvmlApi) -> list[NvmlFunction]:
    """The functions that have a row in the table."""
    return [f for f in api.functions if f.source is not Source.LOCAL or f.asked]


def emit_exports(api: NvmlApi) -> str:
    """The table of functions, in the order of their names, and the exported functions."""
    out = [BANNER, '#include "vgs_nvml_answer.h"\n#include "vgs_nvml_init.h"\n\n']
    served = _served(api)
    for f in served:
        if f.asked or f.params:
            rows = ", ".join(_row(p) for p in f.asked or f.params)
            out.append(f"static const struct vgs_nvml_param params_{f.name}[] = {{{rows}}};\n")
    out.append("\nconst struct vgs_nvml_function vgs_nvml_functions[] = {\n")
    for f in served:
        params = f"params_{f.name}" if f.asked or f.params else "NULL"
        source = "VGS_NVML_NONE" if f.source is Source.NONE else "VGS_NVML_ASKED"
        out.append(f'    {{"{f.name}", {params}, {len(f.asked or f.params)}, {source}, {f.refusal}}},\n')
    out.append(f"}};\nconst unsigned vgs_nvml_function_count = {len(served)};\n\n")
    index = {f.name: i for i, f in enumerate(served)}
    for f in api.functions:
        if f.source is Source.LOCAL:
            out.append(_local(f))
            continue
        words = ", ".join(
            f"(uint64_t)(uintptr_t){p.name}" if "*" in p.c or p.role is Role.DEVICE else p.name for p in f.params
        )
        array = f"(const uint64_t[]){{{words}}}" if words else "NULL"
        out.append(
            f'__attribute__((visibility("default"))) {_prototype(f, f.name)} {{\n'
            f"  return vgs_nvml_answer({index[f.name]}, {array});\n}}\n\n"
        )
    return "".join(out)


def emit_map(api: NvmlApi) -> str:
    """The version script. NVIDIA's library gives its names no versions."""
    return "{\n  global:\n" + "".join(f"    {name};\n" for name in api.exports) + "  local: *;\n};\n"


def emit_python(api: NvmlApi) -> str:
    """What vgpud answers: struct layouts, and each function's parameters as (role, bytes, struct, versions)."""
    out = ['"""NVML as vgpud answers it. Generated from protocol/spec_nvml; do not edit."""\n\n']
    out.append("# struct: (format, names of its fields)\nSTRUCTS: dict[str, tuple[str, tuple[str, ...]]] = {\n")
    for s in api.structs.values():
        out.append(f"    {s.name!r}: ({s.layout()[0]!r}, {tuple(label for label, _, _ in s.fields)!r}),\n")
    out.append("}\n\n# function: (source, domain of its integers, [(role, bytes, struct, versions, inputs), ...])\n")
    out.append("CALLS: dict[str, tuple[str, int, tuple[tuple[str, int, str, tuple[int, ...], int], ...]]] = {\n")
    for f in api.functions:
        if f.asked or f.source in (Source.SNAPSHOT, Source.LIVE):
            params = tuple((p.role.value, p.nbytes, p.struct, p.versions, p.inputs) for p in f.asked or f.params)
            source = Source.LIVE if f.asked else f.source
            out.append(f"    {f.name!r}: ({source.value!r}, {f.domain}, {params!r}),\n")
    out.append("}\n\n# every exported function: where its answer comes from\nSOURCES: dict[str, str] = {\n")
    out += [f"    {f.name!r}: {(Source.LIVE if f.asked else f.source).value!r},\n" for f in api.functions]
    out.append("}\n\n# functions without an answer: why\nREASONS: dict[str, str] = {\n")
    for reason, names in absent_nvml(api).items():
        out += [f"    {name!r}: {reason!r},\n" for name in names]
    return "".join(out) + "}\n"


def absent_nvml(api: NvmlApi) -> dict[str, list[str]]:
    """Functions without an answer, by the reason. Raises SpecError for one that has none."""
    found: dict[str, list[str]] = {reason: [] for reason, _ in REASONS}
    for name in (f.name.removeprefix("nvml") for f in api.functions if f.source is Source.NONE):
        reason = next((why for why, names in REASONS if any(fnmatchcase(name, n) for n in names.split())), None)
        if reason is None:
            raise SpecError(f"nvml{name}: neither an answer nor a reason (protocol/spec_nvml/absent.py)")
        found[reason].append(f"nvml{name}")
    return {reason: names for reason, names in found.items() if names}


def emit_all(api: NvmlApi) -> dict[str, str]:
    """Files of build/gen/nvml by name."""
    return {
        "vgs_nvml_api.h": emit_header(api),
        "vgs_nvml_exports.c": emit_exports(api),
        "libnvidia-ml.map": emit_map(api),
    }
