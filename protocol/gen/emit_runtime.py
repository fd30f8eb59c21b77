"""The runtime libraries: the table of driver functions; for each major exports, layouts, tables and version script."""

from __future__ import annotations

import re

from protocol.gen.cupti import runtime_callback_id
from protocol.gen.emit_records import includes
from protocol.gen.model import SpecError
from protocol.gen.runtime import MAJORS, SONAMES, SUFFIXES, VERSIONS, Runtime, RuntimeFunction, Struct
from protocol.spec_runtime.property import PROPERTIES

BANNER = "/* Generated from protocol/spec_runtime by protocol/gen; do not edit. */\n"
EXPORT = '#define VGS_EXPORT __attribute__((visibility("default")))\n\n'


def emit_driver_header(runtime: Runtime) -> str:
    out = [
        BANNER,
        "#ifndef VGS_RT_DRIVER_H\n#define VGS_RT_DRIVER_H\n\n",
        '#include "vgw_cuda.h"\n\n',
        "/* The driver's functions that the runtime calls. None is NULL: one that the driver lacks answers\n",
        " * NOT_SUPPORTED. */\n",
        "struct vgs_rt_driver {\n",
    ]
    out += [f"  CUresult (*{d.symbol})({d.params});\n" for d in runtime.drivers]
    out += [
        "};\n\n",
        "/* What cuGetProcAddress is asked for. */\n",
        "struct vgs_rt_driver_name {\n  const char *base;\n  int version;\n};\n\n",
        f"enum {{ VGS_RT_DRIVER_FUNCTIONS = {len(runtime.drivers)} }};\n",
        "/* In the order of the struct's members. */\n",
        "extern const struct vgs_rt_driver_name vgs_rt_driver_names[VGS_RT_DRIVER_FUNCTIONS];\n\n#endif\n",
    ]
    return "".join(out)


def emit_driver_names(runtime: Runtime) -> str:
    out = [BANNER, includes("vgs_rt_driver.h")]
    out.append("const struct vgs_rt_driver_name vgs_rt_driver_names[VGS_RT_DRIVER_FUNCTIONS] = {\n")
    out += [f'    {{"{d.base}", {d.version}}},\n' for d in runtime.drivers]
    return "".join([*out, "};\n"])


def emit_layout(runtime: Runtime, major: int) -> str:
    """The structs of one major; the compiler checks every offset against the description."""
    out = [BANNER, "#ifndef VGS_RT_LAYOUT_H\n#define VGS_RT_LAYOUT_H\n\n", '#include "vgw_cuda.h"\n\n']
    out.append(f"#define VGS_RT_MAJOR {major}\n#define VGS_RT_VERSION {VERSIONS[major]}\n\n")
    done: set[str] = set()
    waiting = list(runtime.structs[major])
    while waiting:  # a struct comes after those it holds
        ready = [s for s in waiting if _held(s) <= done]
        if not ready:
            raise SpecError(f"{waiting[0].name}: holds a struct that is not described")
        for s in ready:
            out.append(_struct(s))
            done.add(s.name)
        waiting = [s for s in waiting if s not in ready]
    return "".join([*out, "#endif\n"])


def _held(s: Struct) -> set[str]:
    return {f.c.removeprefix("struct ") for f in s.fields if f.c.startswith("struct ")}


def _struct(s: Struct) -> str:
    lines = [f"struct {s.name} {{\n"]
    for f in s.fields:
        space = "" if f.c.endswith("*") else " "
        lines.append(f"  {f.c}{space}{f.name}{f'[{f.count}]' if f.count else ''};\n")
    lines.append("};\n")
    lines.append(f'_Static_assert(sizeof(struct {s.name}) == {s.nbytes}, "{s.name}");\n')
    for f in s.fields:
        lines.append(f'_Static_assert(offsetof(struct {s.name}, {f.name}) == {f.offset}, "{s.name}.{f.name}");\n')
    return "".join([*lines, "\n"])


def _property_rows(runtime: Runtime, major: int) -> list[str]:
    prop = next(s for s in runtime.structs[major] if s.name == "cudaDeviceProp")
    rows = []
    for f in prop.fields:
        if f.name not in PROPERTIES:
            continue
        ids = PROPERTIES[f.name]
        width = 8 if f.c == "size_t" else 4
        if len(ids) != int(f.count or 1):
            raise SpecError(f"cudaDeviceProp.{f.name}: {len(ids)} attributes for {f.count or 1} values")
        rows += [f"    {{{f.offset + width * i}, {width}, {ids[i]}}}, /* {f.name} */\n" for i in range(len(ids))]
    return rows


def emit_tables(runtime: Runtime, major: int) -> str:
    """Error names, and which attribute fills which bytes of cudaDeviceProp.

    Library 12 has two layouts: `cudaGetDeviceProperties` kept that of 11.
    """
    out = [BANNER, includes("<stddef.h>", "vgs_rt_tables.h")]
    for layout in sorted({11 if major == 12 else major, major}):
        prop = next(s for s in runtime.structs[layout] if s.name == "cudaDeviceProp")
        offset = {f.name: f.offset for f in prop.fields}
        rows = _property_rows(runtime, layout)
        out.append(f"static const struct vgs_rt_property properties_{layout}[] = {{\n{''.join(rows)}}};\n\n")
        role = "current" if layout == major else "old"
        out.append(
            f"const struct vgs_rt_property_layout vgs_rt_properties_{role} = {{\n"
            f"    .nbytes = {prop.nbytes},\n    .uuid = {offset['uuid']},\n"
            f"    .total_memory = {offset['totalGlobalMem']},\n    .count = {len(rows)},\n"
            f"    .properties = properties_{layout},\n}};\n\n"
        )
    errors = [(code, name, text) for code, name, since, text in runtime.errors if since <= major]
    out.append("const struct vgs_rt_error_entry vgs_rt_errors[] = {\n")
    for code, name, text in errors:
        out.append(f'    {{{code}, "{name}", {f"{chr(34)}{text}{chr(34)}" if text else "NULL"}}},\n')
    out.append("};\n\nconst size_t vgs_rt_error_count = sizeof vgs_rt_errors / sizeof vgs_rt_errors[0];\n")
    return "".join(out)


def emit_api(runtime: Runtime, major: int) -> str:
    """Prototypes of the hand-written bodies of one major."""
    out = [BANNER, "#ifndef VGS_RT_API_H\n#define VGS_RT_API_H\n\n"]
    out.append(includes("vgs_rt_driver.h", "vgs_rt_layout.h"))
    for f in runtime.bodies(major).values():
        if f.returns:
            out.append(f"{_spaced(f.returns)}vgs_{f.name}({f.params});\n")
        elif not f.call:
            out.append(f"int vgs_{f.name}({_with_table(f)});\n")
    return "".join([*out, "\n#endif\n"])


def _spaced(c: str) -> str:
    return c if c.endswith("*") else f"{c} "


def _with_table(f: RuntimeFunction) -> str:
    table = "const struct vgs_rt_driver *cu"
    return table if f.params == "void" else f"{table}, {f.params}"


def _export(name: str, f: RuntimeFunction, table: str, major: int) -> str:
    arguments = ", ".join(f.argument_names())
    if f.returns:
        give = "" if f.returns == "void" else "return "
        return f"VGS_EXPORT {_spaced(f.returns)}{name}({f.params}) {{ {give}vgs_{f.name}({arguments}); }}\n\n"
    if f.call:
        body = re.sub(r"\b(cu[A-Z]\w*)\(", rf"{table}.\1(", f.call)
    else:
        body = f"vgs_{f.name}(&{table}{', ' if arguments else ''}{arguments})"
    begin, end = _observed(name, f, major)
    return (
        f"VGS_EXPORT int {name}({f.params}) {{\n{begin}"
        f"  int result = vgs_rt_enter_{f.ready.value}();\n"
        f"  if (result == CUDA_SUCCESS)\n    result = {body};\n{end}"
        f'  return vgs_rt_leave("{name}", result);\n}}\n\n'
    )


def _observed(name: str, f: RuntimeFunction, major: int) -> tuple[str, str]:
    """Code that shows a call to a profiler before and after it; none if CUPTI has no number for it."""
    number = runtime_callback_id(name, major)
    if not number or "(" in f.params:  # parameters with a function pointer cannot be split at commas
        return "", ""
    names = f.argument_names()
    members = "".join(f"{p.strip()}; " for p in f.params.split(",")) if names else ""
    struct = f"  struct {{ {members}}} shown;\n" if names else ""
    fill = f"    shown = (__typeof__(shown)){{{', '.join(names)}}};\n" if names else ""
    stream = next((p.split()[-1] for p in f.params.split(",") if p.strip().startswith("CUstream ")), "NULL")
    begin = (
        f"  bool observed = vgs_rt_observed();\n  struct vgs_api_call call;\n{struct}  if (observed) {{\n{fill}"
        f"    call = (struct vgs_api_call){{.domain = VGS_API_RUNTIME, .id = {number}, "
        f'.name = "{name}", .params = {"&shown" if names else "NULL"}, .stream = {stream}}};\n'
        "    vgs_rt_profiling->enter(&call);\n  }\n"
    )
    return begin, "  if (observed)\n    vgs_rt_profiling->leave(&call, result);\n"


def emit_exports(runtime: Runtime, major: int) -> str:
    out = [
        BANNER,
        includes("<stdbool.h>", "vgs_log.h", "vgs_rt_api.h", "vgs_rt_error.h", "vgs_rt_init.h"),
        includes("vgs_rt_missing.h", "vgs_rt_open.h"),
        EXPORT,
    ]
    bodies = runtime.bodies(major)
    missing = []
    for name in runtime.exports[major]:
        suffix = next((s for s in SUFFIXES if name.endswith(s)), "")
        base = name.removesuffix(suffix)
        if base in bodies:
            f = bodies[base]
            table = "vgs_rt_driver_per_thread" if suffix else "vgs_rt_driver_legacy"
            if suffix and f.returns:
                raise SpecError(f"{name}: a function without an error has no per-thread form")
            out.append(_export(name, f, table, major))
        else:
            missing.append(name)
            out.append(
                f"VGS_EXPORT int {name}(void) {{\n  static bool named;\n"
                f'  return vgs_rt_leave("{name}", vgs_unimplemented("{name}", &named));\n}}\n\n'
            )
    names = "".join(f'    "{name}",\n' for name in sorted(missing))
    out.append(f'const char vgs_rt_soname[] = "{SONAMES[major]}";\n\n')
    out.append(f"const char *const vgs_rt_missing[] = {{\n{names}    NULL,\n}};\n\n")
    out.append(f"const size_t vgs_rt_missing_count = {len(missing)};\n")
    return "".join(out)


def emit_map(runtime: Runtime, major: int) -> str:
    """One version node, named like the library: programs are bound to `name@@libcudart.so.N`."""
    names = "".join(f"    {name};\n" for name in runtime.exports[major])
    return f"{BANNER}{SONAMES[major]} {{\n  global:\n{names}  local:\n    *;\n}};\n"


def emit(runtime: Runtime) -> dict[str, str]:
    """All generated files: name to text; those of one major lie in a folder named after it."""
    out = {"vgs_rt_driver.h": emit_driver_header(runtime), "vgs_rt_driver_names.c": emit_driver_names(runtime)}
    for major in MAJORS:
        out |= {
            f"{major}/vgs_rt_layout.h": emit_layout(runtime, major),
            f"{major}/vgs_rt_api.h": emit_api(runtime, major),
            f"{major}/vgs_rt_exports.c": emit_exports(runtime, major),
            f"{major}/vgs_rt_tables.c": emit_tables(runtime, major),
            f"{major}/libcudart.map": emit_map(runtime, major),
        }
    return out
