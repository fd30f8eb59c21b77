"""The client's half: prototypes, exported functions, version script, cuGetProcAddress table."""

from __future__ import annotations

from protocol.gen.cupti import DRIVER, callback_ids
from protocol.gen.emit_forward import declarations, forward
from protocol.gen.emit_marshal import begin, begin_head, in_place, send, send_params
from protocol.gen.emit_records import BANNER, includes
from protocol.gen.load import Api
from protocol.gen.model import Function, Need, Role

SUFFIXES = ("_ptsz", "_ptds")


def emit_api(api: Api) -> str:
    out = [
        BANNER,
        "#ifndef VGS_API_H\n#define VGS_API_H\n\n#include <stdbool.h>\n\n",
        '#include "vgw_cuda.h"\n#include "vgw_records.h"\n\n',
        "/* Bodies of the exported functions: hand-written in shim/cuda, or generated where they only forward. */\n",
    ]
    for f in api.functions:
        if f.exported:
            out.append(f"CUresult vgs_{f.name}({declarations(f.args)});\n")
    out.append(
        "\n/* Marshalling: one record each. `wait` turns a queued call into a waiting one. Handles are ids; the"
        "\n * ids of new objects are the caller's choice. Results are written only on success. */\n"
    )
    for f in api.travelling():
        out.append(f"CUresult vgs_send_{f.name}({send_params(f)});\n")
    out.append(
        "\n/* The same, queued, for calls that are made often: the record is begun, the caller writes its part where it"
        "\n * travels, then sends or drops it (vgs_session.h). False: not now, and vgs_send can do it. */\n"
        "struct vgs_record;\n"
    )
    out += [f"{begin_head(f)};\n" for f in in_place(api)]
    out.append("\n#endif\n")
    return "".join(out)


def emit_marshal(api: Api) -> str:
    out = [BANNER, includes("<stdlib.h>", "<string.h>", *MARSHAL_HEADERS)]
    out += [send(f) + "\n" for f in api.travelling()]
    out += [begin(f) + "\n" for f in in_place(api)]
    return "".join(out)


def emit_forward(api: Api) -> str:
    out = [BANNER, includes("<stdlib.h>", *FORWARD_HEADERS)]
    out += [forward(f) + "\n" for f in api.functions if f.exported and not (f.guest_custom or f.form_of)]
    return "".join(out)


MARSHAL_HEADERS = ("vgs_api.h", "vgs_handle.h", "vgs_session.h", "vgw_wire.h")
FORWARD_HEADERS = (
    "vgs_api.h",
    "vgs_apart.h",
    "vgs_array.h",
    "vgs_array_copy.h",
    "vgs_capture.h",
    "vgs_claiming.h",
    "vgs_context.h",
    "vgs_copy.h",
    "vgs_copy_box.h",
    "vgs_device.h",
    "vgs_event.h",
    "vgs_external.h",
    "vgs_graph.h",
    "vgs_graph_capture.h",
    "vgs_graph_copy.h",
    "vgs_graph_kernel.h",
    "vgs_graph_memory.h",
    "vgs_graph_node.h",
    "vgs_graph_part.h",
    "vgs_image.h",
    "vgs_ipc.h",
    "vgs_kernel.h",
    "vgs_launch_old.h",
    "vgs_library.h",
    "vgs_limit.h",
    "vgs_managed.h",
    "vgs_mirror.h",
    "vgs_memset.h",
    "vgs_objects.h",
    "vgs_pool.h",
    "vgs_pool_share.h",
    "vgs_range.h",
    "vgs_reason.h",
    "vgs_resource.h",
    "vgs_stream.h",
    "vgs_texture.h",
    "vgs_virtual.h",
    "vgs_word.h",
    "vgs_work.h",
)

KERNELS = {"CUfunction", "CUkernel"}  # the trace names them


def _argument_formats(f: Function) -> tuple[str, list[str]]:
    """A format string for the trace and the values it takes."""
    formats, values = [], []
    for p in f.args:
        if p.role is Role.VALUE and p.scalar:
            spec, cast = {
                "i": ("%d", "int"),
                "u": ("%llu", "unsigned long long"),
                "x": ("0x%llx", "unsigned long long"),
                "f": ("%g", "double"),
            }[p.scalar.trace]
            formats.append(f"{p.name}={spec}")
            values.append(f"({cast}){p.name}")
        elif p.role is Role.TEXT_IN or (p.role is Role.POINTER and p.c == "const char *"):
            formats.append(f"{p.name}=%.200s")
            values.append(f'{p.name} ? {p.name} : "(null)"')
        elif p.c.startswith("CUhostFn") or p.c.startswith("CUstreamCallback") or p.c.startswith("CUoccupancyB2DSize"):
            formats.append(f"{p.name}=%p")
            values.append(f"(void *)(uintptr_t){p.name}")
        elif p.c in KERNELS:
            formats.append(f"{p.name}=%.200s")
            values.append(f"vgs_kernel_traced_name({p.name})")
        elif p.role is Role.STRUCT_VALUE:
            formats.append(f"{p.name}=...")
        else:
            formats.append(f"{p.name}=%p")
            values.append(f"(void *){p.name}")
    return ", ".join(formats), values


def _export(name: str, f: Function, suffix: str = "") -> str:
    call_args = [p.name for p in f.args]
    prologue = ""
    if suffix == "_ptsz":
        stream = f.stream_param() or next((p for p in f.args if p.c == "CUstream"), None)
        if stream:
            prologue = f"  {stream.name} = vgs_stream_per_thread({stream.name});\n"
        else:
            prologue = "  vgs_per_thread_default = true;\n"
    elif suffix == "_ptds":
        prologue = "  vgs_per_thread_default = true;\n"
    epilogue = "  vgs_per_thread_default = false;\n" if "vgs_per_thread_default" in prologue else ""
    enter = f"vgs_enter_{f.need.value}()"
    in_stream = next((p for p in f.args if p.c == "CUstream"), None)
    if f.need is Need.CONTEXT and in_stream:
        enter = f"vgs_enter_stream({in_stream.name})"
    formats, values = _argument_formats(f)
    exported = name + suffix
    trace_args = "".join(f", {v}" for v in values)
    trace_on = "vgs_trace_lookups_on()" if f.look_up else "vgs_trace_on()"
    identifier = callback_ids(DRIVER).get(exported)
    begin, end = _observed(exported, f, identifier) if identifier and f.observed else ("", "")
    return (
        f"VGS_EXPORT CUresult {exported}({declarations(f.args)}) {{\n"
        f"  int saved_errno = errno;\n"
        f"  struct vgs_trace trace;\n"
        f"  bool traced = __atomic_load_n(&vgs_trace_state, __ATOMIC_RELAXED) && {trace_on};\n"
        f"{begin}"
        f'  if (traced) vgs_trace_begin(&trace, "{exported}", "{formats}"{trace_args});\n'
        f"  CUresult result = {enter};\n"
        f"{prologue}"
        f"  if (result == CUDA_SUCCESS) result = vgs_{f.name}({', '.join(call_args)});\n"
        f"{epilogue}"
        f"  if (traced) vgs_trace_end(&trace, result);\n"
        f"{end}"
        f"  errno = saved_errno;\n"
        f"  return result;\n"
        f"}}\n\n"
    )


def _observed(exported: str, f: Function, identifier: int) -> tuple[str, str]:
    """Code that shows a call to a profiler before and after it. The struct has the layout of CUPTI's struct for the
    function.
    """
    members = " ".join(f"{p.declaration};" for p in f.args)
    values = ", ".join(p.name for p in f.args)
    stream = next((p.name for p in f.args if p.c == "CUstream"), "NULL")
    params = f"  struct {{ {members} }} params;\n" if f.args else ""
    fill = f"    params = (__typeof__(params)){{{values}}};\n" if f.args else ""
    begin = (
        f"  bool observed = __atomic_load_n(&vgs_profiling_state, __ATOMIC_RELAXED);\n"
        f"  struct vgs_api_call call;\n{params}"
        f"  if (observed) {{\n{fill}"
        f"    call = (struct vgs_api_call){{.domain = VGS_API_DRIVER, .id = {identifier}, "
        f'.name = "{exported}", .params = {"&params" if f.args else "NULL"}, .stream = {stream}, '
        f".caller = __builtin_return_address(0), .frame = __builtin_dwarf_cfa()"
        f"{', .stacked = true' if f.stacked else ''}}};\n"
        f"    vgs_profiling_enter(&call);\n  }}\n"
    )
    return begin, "  if (observed) vgs_profiling_leave(&call, result);\n"


def emit_exports(api: Api) -> str:
    out = [
        BANNER,
        includes(
            "<errno.h>",
            "<stdbool.h>",
            "<stdint.h>",
            "vgs_api.h",
            "vgs_enter.h",
            "vgs_kernel.h",
            "vgs_log.h",
            "vgs_profiling.h",
        ),
        '#define VGS_EXPORT __attribute__((visibility("default")))\n\n',
    ]
    bodies = api.implementation()
    for name in api.exports:
        if name in bodies:
            out.append(_export(name, bodies[name]))
            continue
        suffix = next((s for s in SUFFIXES if name.endswith(s) and name[: -len(s)] in bodies), "")
        if suffix:
            out.append(_export(name[: -len(suffix)], bodies[name[: -len(suffix)]], suffix))
        else:
            out.append(
                f"VGS_EXPORT CUresult {name}(void) {{\n  static bool named;\n"
                f'  return vgs_unimplemented("{name}", &named);\n}}\n\n'
            )
    return "".join(out)


def emit_map(api: Api) -> str:
    """NVIDIA's libcuda has no version tags: one anonymous node."""
    names = "".join(f"    {name};\n" for name in (*api.exports, *api.own_exports))
    return f"{BANNER}{{\n  global:\n{names}  local:\n    *;\n}};\n"


def emit_procs(api: Api) -> str:
    out = [BANNER, '#include <stddef.h>\n\n#include "vgs_proc_table.h"\n\n']
    symbols = sorted({s for e in api.procs for _, s in e.steps if s})
    # Declared under another C name: the table needs only addresses, and the exports' prototypes are declared elsewhere.
    out += [f'void vgs_ref_{s}(void) __asm__("{s}");\n' for s in symbols]
    out.append("\nconst struct vgs_proc_entry vgs_proc_table[] = {\n")
    for e in api.procs:
        steps = ", ".join(f"{{{v}, {f'vgs_ref_{s}' if s else 'NULL'}}}" for v, s in e.steps)
        out.append(f'    {{"{e.base}", {e.flag}, {len(e.steps)}, {{{steps}}}}},\n')
    out.append("};\n\nconst size_t vgs_proc_count = sizeof vgs_proc_table / sizeof vgs_proc_table[0];\n\n")
    out.append("const struct vgs_error_name vgs_error_names[] = {\n")
    out += [f'    {{{code}, "{name}"}},\n' for code, name in api.error_names]
    out.append("};\n\nconst size_t vgs_error_name_count = sizeof vgs_error_names / sizeof vgs_error_names[0];\n")
    return "".join(out)


PROC_HEADER = (
    BANNER
    + """#ifndef VGS_PROC_TABLE_H
#define VGS_PROC_TABLE_H

#include <stddef.h>

/* What cuGetProcAddress answers: sorted by base name, then flag (0, or 2 for per-thread default streams). From each
 * version on, a function; NULL: nothing of that name yet. */
struct vgs_proc_step {
  int version;
  void (*function)(void);
};

struct vgs_proc_entry {
  const char *base;
  int flag;
  int step_count;
  struct vgs_proc_step steps[5];
};

extern const struct vgs_proc_entry vgs_proc_table[] __attribute__((visibility("hidden")));
extern const size_t vgs_proc_count __attribute__((visibility("hidden")));

struct vgs_error_name {
  int code;
  const char *name;
};

extern const struct vgs_error_name vgs_error_names[] __attribute__((visibility("hidden")));
extern const size_t vgs_error_name_count __attribute__((visibility("hidden")));

#endif
"""
)
