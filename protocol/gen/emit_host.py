"""The worker's half: the backend table, and one decoder per record that checks everything before it calls."""

from __future__ import annotations

from protocol.gen.emit_guest import ON_SOCKET, declarations
from protocol.gen.emit_records import BANNER, includes, part_in, part_out, reply_fields, request_fields
from protocol.gen.load import Api
from protocol.gen.model import Function, Need, Param, Role

PRELUDE = """/* What opens another worker's allocation: the backend's handle, which no client sees, and a descriptor
 * that goes with it, or -1. */
struct vgx_ipc_object {
  CUipcMemHandle handle;
  int fd;
};

/* A driver, as the executor sees it: functions named and typed like libcuda's. NULL: not offered. Filled
 * by the simulator (daemon/vgpusim/device) or from the real libcuda (vgx_cuda.c). */
struct vgx_backend {
  const char *name;
  /* Load an image of known size: what cuModuleLoadData and cuLibraryLoadData do, but bounded. */
  CUresult (*load_module)(CUmodule *module, const void *image, uint64_t nbytes);
  CUresult (*load_library)(CUlibrary *library, const void *image, uint64_t nbytes);
  /* cuLink over PTX inputs; *out is malloc'ed. */
  CUresult (*link)(CUdevice device, const void *const *data, const uint64_t *nbytes, uint32_t count, void **out,
                   uint64_t *out_nbytes);
  /* What kernels printed. take_output returns the bytes written to `text`. */
  bool (*output_pending)(void);
  uint64_t (*take_output)(char *text, uint64_t capacity);
  /* cuIpcGetMemHandle and cuIpcOpenMemHandle among the backend's own processes. The descriptor is the caller's. */
  CUresult (*ipc_export)(struct vgx_ipc_object *object, CUdeviceptr base);
  CUresult (*ipc_open)(CUdeviceptr *base, const struct vgx_ipc_object *object, unsigned int flags);
  /* A managed variable of a library: *placed is its address, 0 while it has none; `address`, if not 0, is
   * where it lies from now on, in registered memory of its size. */
  CUresult (*managed_variable)(CUlibrary library, const char *name, uint64_t address, uint64_t *placed,
                               uint64_t *nbytes);
  /* Have the device's memory lie in the client's file (vgw_device_memory.h). The descriptor is the caller's. */
  CUresult (*device_file)(CUdevice device, int fd);
"""


def emit_backend(api: Api) -> str:
    out = [
        BANNER,
        "#ifndef VGX_BACKEND_H\n#define VGX_BACKEND_H\n\n",
        includes("<stdbool.h>", "<stdint.h>", "vgw_cuda.h"),
        PRELUDE,
    ]
    out += [f"  CUresult (*{f.name})({declarations(f.args)});\n" for f in api.backend_members()]
    out.append(
        "};\n\n/* Every member that a libcuda exports, for filling the table by name: VGX_BACKEND_FUNCTIONS(X). */\n"
    )
    out.append("#define VGX_BACKEND_FUNCTIONS(X) \\\n")
    out.append(" \\\n".join(f"  X({f.name})" for f in api.backend_members()))
    out.append("\n\n#endif\n")
    return "".join(out)


def _argument(p: Param) -> str:
    assert p.scalar or p.role is not Role.VALUE
    if p.role is Role.VALUE and p.scalar:
        return f"({p.scalar.c})req->{p.name}"
    if p.role is Role.OUT or p.role is Role.OUT_HANDLE:
        return f"&{p.name}"
    if p.role is Role.STRUCT_IN:
        return f"&req->{p.name}"
    if p.role is Role.STRUCT_OUT:
        return f"&{p.name}"
    return p.name


def _decode(f: Function) -> list[str]:
    lines = []
    if request_fields(f):
        lines.append(f"  const struct vgw_req_{f.name} *req = vgw_take(in, sizeof *req);")
        lines.append('  if (!req) return vgx_violation(s, "short record");')
    for p in part_in(f):
        size = f"req->{p.name}_nbytes" if p.role is Role.TEXT_IN else f"req->{p.size}"
        lines.append(f'  if ({size} > {p.cap}) return vgx_violation(s, "{p.name} too long");')
        lines.append(f"  const {'char' if p.role is Role.TEXT_IN else 'void'} *{p.name} = vgw_take(in, {size});")
        lines.append(f'  if (!{p.name}) return vgx_violation(s, "short {p.name}");')
    tail = part_out(f)
    if tail:
        lines.append(f'  if (req->{tail.size} > {tail.cap}) return vgx_violation(s, "{tail.name} too long");')
    return lines


def _dispatch(f: Function) -> str:
    head = f"static CUresult dispatch_{f.name}(struct vgx_session *s, struct vgw_cursor *in, struct vgx_reply *out) {{"
    lines = [head, "  (void)in, (void)out;"]
    lines += _decode(f)
    fields = reply_fields(f)
    tail = part_out(f)
    if f.host_custom:
        if fields:
            lines.append(f"  struct vgw_rep_{f.name} rep;\n  memset(&rep, 0, sizeof rep);")
        if tail:
            lines.append(
                f"  void *{tail.name} = vgx_reply_part(out, req->{tail.size}, {'sizeof rep' if fields else '0'});"
            )
            lines.append(f"  uint64_t {tail.name}_nbytes = req->{tail.size};")
        arguments = ["s"] + (["req"] if request_fields(f) else []) + [p.name for p in part_in(f)]
        arguments += (["&rep"] if fields else []) + ([tail.name, f"&{tail.name}_nbytes"] if tail else [])
        lines.append(f"  CUresult result = vgx_{f.name}({', '.join(arguments)});")
    else:
        lines.append(f'  if (!s->backend->{f.name}) return vgx_not_offered(s, "{f.name}");')
        for p in f.sent:
            if p.role is Role.HANDLE and p.kind:
                lines.append(f"  {p.kind.c} {p.name} = NULL;")
                lines.append(
                    f"  CUresult {p.name}_result = "
                    f"vgx_handle(s, VGW_KIND_{p.kind.name}, req->{p.name}, (void **)&{p.name});"
                )
                lines.append(f"  if ({p.name}_result != CUDA_SUCCESS) return {p.name}_result;")
            elif p.role is Role.OUT and p.scalar:
                lines.append(f"  {p.scalar.c} {p.name} = 0;")
            elif p.role is Role.OUT_HANDLE and p.kind:
                lines.append(f"  {p.kind.c} {p.name} = NULL;")
            elif p.role is Role.STRUCT_OUT:
                lines.append(f"  {p.c.removesuffix(' *')} {p.name};\n  memset(&{p.name}, 0, sizeof {p.name});")
            elif p.role is Role.TEXT_IN:
                lines.append(f"  char {p.name}_text[VGX_TEXT_NBYTES];")
                lines.append(
                    f"  if (!vgx_text({p.name}_text, {p.name}, req->{p.name}_nbytes)) return CUDA_ERROR_NOT_FOUND;"
                )
            elif p.role is Role.BYTES_OUT:
                lines.append(
                    f"  void *{p.name} = vgx_reply_part(out, req->{p.size}, "
                    f"{f'sizeof(struct vgw_rep_{f.name})' if fields else '0'});"
                )
        for p in f.sent:  # last, so that no early return leaves an id reserved
            if p.role is Role.OUT_HANDLE and p.kind:
                lines.append(
                    f"  if (!vgx_handle_reserve(s, VGW_KIND_{p.kind.name}, req->{p.name})) "
                    f'return vgx_violation(s, "{p.name} taken");'
                )
        arguments = [f"{p.name}_text" if p.role is Role.TEXT_IN else _argument(p) for p in f.args]
        lines.append(f"  CUresult result = s->backend->{f.name}({', '.join(arguments)});")
        for p in f.sent:
            if p.role is Role.OUT_HANDLE and p.kind:
                lines.append(
                    f"  vgx_handle_set(s, VGW_KIND_{p.kind.name}, req->{p.name}, "
                    f"result == CUDA_SUCCESS ? {p.name} : NULL);"
                )
        if fields:
            lines.append(f"  struct vgw_rep_{f.name} rep;\n  memset(&rep, 0, sizeof rep);")
            lines += [f"  rep.{p.name} = {p.name};" for p in f.sent if p.role in (Role.OUT, Role.STRUCT_OUT)]
        if tail:
            lines.append(f"  uint64_t {tail.name}_nbytes = req->{tail.size};")
    if fields or tail:
        fixed = "&rep, sizeof rep" if fields else "NULL, 0"
        lines.append(
            f"  if (result == CUDA_SUCCESS) vgx_reply_finish(out, {fixed}, {tail.name + '_nbytes' if tail else '0'});"
        )
    lines.append("  return result;\n}\n")
    return "\n".join(lines)


def custom_prototype(f: Function) -> str:
    fields = reply_fields(f)
    tail = part_out(f)
    parameters = ["struct vgx_session *s"] + ([f"const struct vgw_req_{f.name} *req"] if request_fields(f) else [])
    parameters += [f"const {'char' if p.role is Role.TEXT_IN else 'void'} *{p.name}" for p in part_in(f)]
    parameters += ([f"struct vgw_rep_{f.name} *rep"] if fields else []) + (
        [f"void *{tail.name}", f"uint64_t *{tail.name}_nbytes"] if tail else []
    )
    return f"CUresult vgx_{f.name}({', '.join(parameters)});\n"


def emit_custom(api: Api) -> str:
    out = [BANNER, '#ifndef VGX_CUSTOM_H\n#define VGX_CUSTOM_H\n\n#include "vgw_records.h"\n\nstruct vgx_session;\n\n']
    out.append(
        "/* Hand-written halves. Lengths are checked; ids in `req` are not yet looked up. A variable result's\n"
        " * capacity comes in through *_nbytes, its size goes out the same way. */\n"
    )
    out += [custom_prototype(f) for f in api.travelling() if f.host_custom]
    out.append("\n#endif\n")
    return "".join(out)


def _entry_flags(f: Function) -> str:
    flags = []
    if f.need is Need.CONTEXT:
        flags.append("VGX_NEEDS_CONTEXT")
    if f.blocks:
        flags.append("VGX_BLOCKS")
    if f.name in ON_SOCKET:
        flags.append("VGX_ABOUT_CHANNEL")
    if f.name in ON_SOCKET - {"vgpuRingFence"}:  # which the client puts into rings itself
        flags.append("VGX_NOT_IN_RING")
    return " | ".join(flags) or "0"


def emit_dispatch(api: Api) -> str:
    out = [
        BANNER,
        includes("<string.h>", "vgw_records.h", "vgw_wire.h", "vgx_custom.h", "vgx_session.h"),
    ]
    out += [_dispatch(f) + "\n" for f in api.travelling()]
    out.append("const struct vgx_operation vgx_operations[VGW_OP_COUNT] = {\n")
    for f in api.travelling():
        fixed = f"sizeof(struct vgw_req_{f.name})" if request_fields(f) else "0"
        out.append(f'    [VGW_OP_{f.name}] = {{"{f.name}", dispatch_{f.name}, {_entry_flags(f)}, {fixed}}},\n')
    out.append("};\n")
    return "".join(out)
