"""The client's half: prototypes, marshalling, exported functions, version script, cuGetProcAddress table."""

from __future__ import annotations

from protocol.gen.emit_records import BANNER, includes, part_in, part_out, reply_fields, request_fields
from protocol.gen.load import Api
from protocol.gen.model import Function, Param, Role, Travel

SUFFIXES = ("_ptsz", "_ptds")


def declarations(params: list[Param]) -> str:
    return ", ".join(p.declaration for p in params) or "void"


def send_params(f: Function) -> list[str]:
    """Parameters of `vgs_send_NAME`: as the driver's, but handles are ids."""
    out = []
    for p in f.sent:
        if p.role in (Role.HANDLE, Role.OUT_HANDLE):
            out.append(f"uint32_t {p.name}")
        else:
            out.append(p.declaration)
    if f.travel is Travel.QUEUED:
        out.append("bool wait")
    if f.name in PASSES_FD:
        out.append("int fd")
    return out


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
        out.append(f"CUresult vgs_send_{f.name}({', '.join(send_params(f)) or 'void'});\n")
    out.append(
        "\n/* The same, queued, for calls that are made often: the record is begun, the caller writes its part where it"
        "\n * travels, then sends or drops it (vgs_session.h). False: not now, and vgs_send can do it. */\n"
        "struct vgs_record;\n"
    )
    out += [f"{_begin_head(f)};\n" for f in _in_place(api)]
    out.append("\n#endif\n")
    return "".join(out)


def _size_of(f: Function, p: Param) -> str:
    return f"{p.name}_nbytes" if p.role is Role.TEXT_IN else f"(uint64_t){p.size}"


IN_PLACE = {"cuLaunchKernel"}  # queued calls with one part that are made often enough to write it where it travels


def _in_place(api: Api) -> list[Function]:
    return [f for f in api.travelling() if f.name in IN_PLACE]


def _begin_head(f: Function) -> str:
    [part] = part_in(f)
    values = [p for p in f.sent if p is not part]
    declared = [f"uint32_t {p.name}" if p.role is Role.HANDLE else p.declaration for p in values]
    return f"bool vgs_begin_{f.name}(struct vgs_record *record, {', '.join(declared)}, void **{part.name})"


PASSES_FD = {"vgpuHostMap", "vgpuRingOpen", "vgpuDeviceFile"}  # calls that hand a descriptor to the worker
# Calls that a ring cannot carry: about rings themselves, and those that wait for the program's own host functions.
ON_SOCKET = PASSES_FD | {
    "vgpuRingOpenAt",
    "vgpuRingWake",
    "vgpuRingWait",
    "vgpuRingFence",
    "vgpuNextCallback",
    "vgpuCallbackDone",
}

# Waiting calls besides those that block which leave no work behind in a stream they touch.
SETTLED = {"cuStreamQuery", "cuEventQuery", "cuEventElapsedTime_v2"}
# The one that may block and leaves work nevertheless.
UNSETTLED = {"vgpuIpcEventWait"}


def _touches(f: Function) -> list[str]:
    """The streams and events a call is ordered by; none: it is ordered with every call of every thread."""
    touched = [p for p in f.sent if p.kind is not None and p.kind.name in ("STREAM", "EVENT")]
    if not touched:
        return []
    inner = ", ".join(f"{{VGW_KIND_{p.kind.name}, {p.name}}}" for p in touched if p.kind)
    return [f"      .touched_count = {len(touched)},", f"      .touched = {{{inner}}},"]


def _fill_request(f: Function) -> list[str]:
    lines = [f"  struct vgw_req_{f.name} req;", "  memset(&req, 0, sizeof req);"]
    for p in f.sent:
        if p.role is Role.STRUCT_IN:
            lines.append(f"  req.{p.name} = *{p.name};")
        elif p.role is Role.TEXT_IN:
            lines.append(f"  req.{p.name}_nbytes = (uint32_t){p.name}_nbytes;")
        elif p.role in (Role.VALUE, Role.HANDLE, Role.OUT_HANDLE):
            lines.append(f"  req.{p.name} = {p.name};")
    return lines


def _begin(f: Function) -> str:
    """Write the fixed fields where they travel, and say where the part goes, behind its padding."""
    [part] = part_in(f)
    [stream] = [p for p in f.sent if p.kind is not None]
    lines = [
        f"{_begin_head(f)} {{",
        *_fill_request(f),
        "  enum { FIXED_NBYTES = (sizeof req + 7) & ~7 };",
        f"  uint64_t nbytes = vgw_pad8({_size_of(f, part)});",
        f"  uint8_t *at = vgs_record_begin(record, VGW_OP_{f.name}, {stream.name}, FIXED_NBYTES + nbytes);",
        "  if (!at) return false;",
        "  memset(at + FIXED_NBYTES - 8, 0, 8);",
        "  memcpy(at, &req, sizeof req);",
        "  if (nbytes) memset(at + FIXED_NBYTES + nbytes - 8, 0, 8);",
        f"  *{part.name} = at + FIXED_NBYTES;",
        "  return true;",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _marshal(f: Function) -> str:
    lines = [f"CUresult vgs_send_{f.name}({', '.join(send_params(f)) or 'void'}) {{"]
    fields = request_fields(f)
    for p in f.sent:
        if p.role is Role.TEXT_IN:
            lines.append(f"  uint64_t {p.name}_nbytes = strlen({p.name});")
            lines.append(f"  if ({p.name}_nbytes > {p.cap}) return CUDA_ERROR_INVALID_VALUE;")
    if fields:
        lines += _fill_request(f)
    replies = reply_fields(f)
    if replies:
        lines.append(f"  struct vgw_rep_{f.name} rep;")
    lines.append("  struct vgs_call call = {")
    lines.append(f"      .opcode = VGW_OP_{f.name},")
    lines.append(f"      .wait = {'wait' if f.travel is Travel.QUEUED else 'true'},")
    lines.append(f"      .fd = {'fd' if f.name in PASSES_FD else '-1'},")
    if f.name in ON_SOCKET:
        lines.append("      .on_socket = true,")
    lines += _touches(f)
    if (f.blocks or f.name in SETTLED) and f.name not in UNSETTLED:
        lines.append("      .settled = true,")
    if fields:
        lines.append("      .fixed = &req,\n      .fixed_nbytes = sizeof req,")
    if replies:
        lines.append("      .reply_fixed = &rep,\n      .reply_fixed_nbytes = sizeof rep,")
    parts = part_in(f)
    if parts:
        lines.append(f"      .part_count = {len(parts)},")
        inner = ", ".join(f"{{(void *){p.name}, {_size_of(f, p)}}}" for p in parts)
        lines.append(f"      .parts = {{{inner}}},")
    tail = part_out(f)
    if tail:
        lines.append(f"      .reply_part = {tail.name},\n      .reply_part_capacity = (uint64_t){tail.size},")
    lines.append("  };")
    outs = [p for p in f.sent if p.role in (Role.OUT, Role.STRUCT_OUT)]
    if not outs:
        lines.append("  return vgs_session_call(&call);")
    else:
        lines.append("  CUresult outcome = vgs_session_call(&call);")
        lines.append("  if (outcome != CUDA_SUCCESS) return outcome;")
        for p in outs:
            cast = f"({p.scalar.c})" if p.scalar else ""
            lines.append(f"  if ({p.name}) *{p.name} = {cast}rep.{p.name};")
        lines.append("  return CUDA_SUCCESS;")
    lines.append("}\n")
    return "\n".join(lines)


def _forward(f: Function) -> str:
    """A body that only forwards: handles to ids, then the message."""
    lines = [f"CUresult vgs_{f.name}({declarations(f.args)}) {{"]
    arguments = []
    for p in f.args:
        if p.role is Role.HANDLE:
            assert p.kind
            lookup = "vgs_stream_id" if p.kind.name == "STREAM" else f"vgs_handle_id_{p.kind.name.lower()}"
            lines.append(f"  uint32_t {p.name}_id = 0;")
            lines.append(f"  CUresult {p.name}_result = {lookup}({p.name}, &{p.name}_id);")
            lines.append(f"  if ({p.name}_result != CUDA_SUCCESS) return {p.name}_result;")
            arguments.append(f"{p.name}_id")
        else:
            if p.role in (Role.OUT, Role.STRUCT_IN, Role.STRUCT_OUT, Role.TEXT_IN) and f.name not in NULL_RESULTS:
                lines.append(f"  if (!{p.name}) return CUDA_ERROR_INVALID_VALUE;")
            arguments.append(p.name)
    if f.travel is Travel.QUEUED:
        arguments.append("false")
    lines.append(f"  return vgs_send_{f.name}({', '.join(arguments)});")
    lines.append("}\n")
    return "\n".join(lines)


NULL_RESULTS = {"cuMemGetInfo_v2"}  # functions whose results may each be NULL


def emit_marshal(api: Api) -> str:
    headers = ("vgs_api.h", "vgs_handle.h", "vgs_session.h", "vgw_wire.h")
    out = [BANNER, "#include <string.h>\n\n", *(f'#include "{header}"\n' for header in headers), "\n"]
    out += [_marshal(f) + "\n" for f in api.travelling()]
    out += [_begin(f) + "\n" for f in _in_place(api)]
    out += [_forward(f) + "\n" for f in api.travelling() if f.exported and not f.guest_custom]
    return "".join(out)


BY_VALUE = {
    "CUipcMemHandle",
    "CUipcEventHandle",
    "CUmemLocation",
}  # structs that the driver's functions take as they are: not traced


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
        elif p.c in BY_VALUE:
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
    formats, values = _argument_formats(f)
    exported = name + suffix
    trace_args = "".join(f", {v}" for v in values)
    return (
        f"VGS_EXPORT CUresult {exported}({declarations(f.args)}) {{\n"
        f"  int saved_errno = errno;\n"
        f"  struct vgs_trace trace;\n"
        f'  if (vgs_trace_on()) vgs_trace_begin(&trace, "{exported}", "{formats}"{trace_args});\n'
        f"  CUresult result = vgs_enter_{f.need.value}();\n"
        f"{prologue}"
        f"  if (result == CUDA_SUCCESS) result = vgs_{f.name}({', '.join(call_args)});\n"
        f"{epilogue}"
        f"  if (vgs_trace_on()) vgs_trace_end(&trace, result);\n"
        f"  errno = saved_errno;\n"
        f"  return result;\n"
        f"}}\n\n"
    )


def emit_exports(api: Api) -> str:
    out = [
        BANNER,
        includes("<errno.h>", "<stdbool.h>", "<stdint.h>", "vgs_api.h", "vgs_enter.h", "vgs_log.h"),
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


OWN_EXPORTS = ("vgpuDeviceIsSimulated", "vgpuHostAlias")  # vgs_alias.h


def emit_map(api: Api) -> str:
    """NVIDIA's libcuda has no version tags: one anonymous node."""
    names = "".join(f"    {name};\n" for name in (*api.exports, *OWN_EXPORTS))
    return f"{BANNER}{{\n  global:\n{names}  local:\n    *;\n}};\n"


def emit_procs(api: Api) -> str:
    out = [BANNER, '#include <stddef.h>\n\n#include "vgs_proc_table.h"\n\n']
    symbols = sorted({s for e in api.procs for _, s in e.steps if s})
    # By another C name: the table needs addresses alone, and the exports' prototypes are declared elsewhere.
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
