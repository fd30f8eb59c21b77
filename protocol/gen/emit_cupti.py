"""libcupti: for each major its exports, version script and layouts of records; tables of what both majors know."""

from __future__ import annotations

from protocol.gen.cupti import DRIVER, MAJORS, RUNTIME, Record, callback_ids, exports, records, results
from protocol.gen.emit_records import includes
from protocol.gen.model import SpecError
from protocol.spec_cupti import CLASSES, FUNCTIONS, RUNTIME_CLASSES

BANNER = "/* Generated from protocol/spec_cupti.py and protocol/data by protocol/gen; do not edit. */\n"
_TYPES = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t"}


def _argument_names(params: str) -> str:
    if params == "void":
        return ""
    if params == "uint64_t (*funcTimestamp)(void)":
        return "funcTimestamp"
    return ", ".join(p.split()[-1].lstrip("*") for p in params.split(","))


def _struct(record: Record) -> str:
    """The record as a packed struct: fields have the type of an unsigned integer of their size."""
    lines, at = [f"struct vgs_cupti_{record.name} {{\n"], 0
    for field in sorted(record.fields, key=lambda f: f.offset):
        if field.offset > at:
            lines.append(f"  uint8_t gap{at}[{field.offset - at}];\n")
        kind = _TYPES.get(field.nbytes)
        lines.append(f"  {kind} {field.name};\n" if kind else f"  uint8_t {field.name}[{field.nbytes}];\n")
        at = field.offset + field.nbytes
    if record.nbytes > at:
        lines.append(f"  uint8_t gap{at}[{record.nbytes - at}];\n")
    lines.append("} __attribute__((packed, aligned(8)));\n")
    lines.append(f'_Static_assert(sizeof(struct vgs_cupti_{record.name}) == {record.nbytes}, "{record.name}");\n\n')
    return "".join(lines)


def _layout(major: int) -> str:
    out = [BANNER, "#ifndef VGS_CUPTI_LAYOUT_H\n#define VGS_CUPTI_LAYOUT_H\n\n", includes("<stdint.h>")]
    out.append(f"#define VGS_CUPTI_MAJOR {major}\n\n")
    out += [_struct(record) for record in records(major)]
    return "".join([*out, "#endif\n"])


def _prototypes() -> str:
    out = [BANNER, "#ifndef VGS_CUPTI_API_H\n#define VGS_CUPTI_API_H\n\n", includes("vgs_cupti.h")]
    out += [f"int vgs_{name}({params});\n" for name, params in FUNCTIONS.items()]
    return "".join([*out, "\n#endif\n"])


def _exports(major: int) -> str:
    out = [BANNER, includes("vgs_cupti_api.h", "vgs_cupti_result.h")]
    out.append('#define VGS_EXPORT __attribute__((visibility("default")))\n\n')
    for name in exports(major):
        params = FUNCTIONS.get(name)
        out.append(f"VGS_EXPORT int {name}({params or 'void'});\n")
        if params:
            call = f"vgs_{name}({_argument_names(params)})"
            body = f"return {call if name == 'cuptiGetLastError' else f'vgs_cupti_remember({call})'};"
        else:
            body = f'static bool named; return vgs_cupti_unsupported("{name}", &named);'
        out.append(f"int {name}({params or 'void'}) {{ {body} }}\n\n")
    return "".join(out)


def _map(major: int) -> str:
    names = "".join(f"    {name};\n" for name in exports(major))
    return f"{BANNER}libcupti.so.{major} {{\n  global:\n{names}  local:\n    *;\n}};\n"


def _class(name: str) -> str:
    return next((kind for prefix, kind in CLASSES if name.startswith(prefix)), "OTHER")


def _runtime_classes(name: str) -> tuple[str, str]:
    return next(((first, last) for prefix, first, last in RUNTIME_CLASSES if name.startswith(prefix)), ("OTHER",) * 2)


def _tables() -> str:
    out = [BANNER, includes("<stddef.h>", "vgs_cupti_tables.h")]
    driver, runtime = callback_ids(DRIVER), callback_ids(RUNTIME)
    out.append("const struct vgs_cupti_function vgs_cupti_drivers[] = {\n")
    for name, number in driver.items():
        thread = "true" if name.endswith(("_ptsz", "_ptds")) else "false"
        waits = "true" if "Async" in name else "false"
        out.append(f'    [{number}] = {{"{name}", VGS_CALL_{_class(name)}, {thread}, {waits}}},\n')
    out.append("};\nconst size_t vgs_cupti_drivers_count = sizeof vgs_cupti_drivers / sizeof vgs_cupti_drivers[0];\n\n")
    out.append("const struct vgs_cupti_runtime vgs_cupti_runtimes[] = {\n")
    for name, number in runtime.items():
        first, last = _runtime_classes(name)
        out.append(f'    [{number}] = {{"{name}", VGS_CALL_{first}, VGS_CALL_{last}}},\n')
    out.append(
        "};\nconst size_t vgs_cupti_runtimes_count = sizeof vgs_cupti_runtimes / sizeof vgs_cupti_runtimes[0];\n\n"
    )
    out.append("const struct vgs_cupti_result_name vgs_cupti_results[] = {\n")
    out += [f'    {{{number}, "{name}"}},\n' for number, name in results()]
    out.append("};\nconst size_t vgs_cupti_result_count = sizeof vgs_cupti_results / sizeof vgs_cupti_results[0];\n")
    return "".join(out)


def emit() -> dict[str, str]:
    """All files of the library, by their path."""
    files = {"vgs_cupti_tables.c": _tables(), "vgs_cupti_api.h": _prototypes()}
    unknown = set(FUNCTIONS).difference(*map(exports, MAJORS))
    if unknown:
        raise SpecError(f"no CUPTI exports {', '.join(sorted(unknown))}")
    for major in MAJORS:
        files |= {
            f"{major}/vgs_cupti_layout.h": _layout(major),
            f"{major}/vgs_cupti_exports.c": _exports(major),
            f"{major}/libcupti.map": _map(major),
        }
    return files
