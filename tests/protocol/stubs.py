"""Stubs for all that the dispatcher calls: each reports the call, reads all its input and fills its results."""

from __future__ import annotations

import re

from protocol.gen.emit_backend import declarations
from protocol.gen.emit_host import custom_prototype
from protocol.gen.load import Api
from protocol.gen.model import Function, Role

HEAD = """#include "vgt_dispatch.h"

#include <unistd.h>

#include "vgx_custom.h"
#include "vgx_ipc.h"
#include "vgx_session.h"

"""


# Members of the backend that the dispatcher calls and that are not driver functions: their parameters and bodies.
HOOKS = {
    "node_number": ("CUgraphNode node, uint64_t *number", "(void)node; *number = 7;"),
    "device_file": ("CUdevice device, int fd", "(void)device, (void)fd;"),
    "load_module": (
        "CUmodule *module, const void *image, uint64_t nbytes",
        "vgt_read(image, nbytes); *module = vgt_object();",
    ),
    "load_library": (
        "CUlibrary *library, const void *image, uint64_t nbytes",
        "vgt_read(image, nbytes); *library = vgt_object();",
    ),
}
TAKE_OUTPUT = """static uint64_t driver_take_output(char *text, uint64_t capacity) {
  vgt_reach("take_output");
  memset(text, 7, capacity);
  return capacity;
}
"""


def _hook(name: str, parameters: str, does: str) -> str:
    head = f"static CUresult driver_{name}({parameters}) {{"
    return f'{head}\n  vgt_reach("{name}");\n  {does}\n  return vgt_result;\n}}\n'


def _driver(f: Function, called: set[str]) -> str:
    lines = [f"static CUresult driver_{f.name}({declarations(f.args)}) {{"]
    if f.name in called:  # members that only serve other calls do not report
        lines.append(f'  vgt_reach("{f.name}");')
    for p in f.args:
        match p.role:
            case Role.BYTES_IN:
                lines.append(f"  vgt_read({p.name}, {p.size});")
            case Role.ARRAY_IN | Role.HANDLES_IN:
                lines.append(f"  vgt_read({p.name}, {p.size} * sizeof *{p.name});")
            case Role.STRUCT_IN:
                lines.append(f"  vgt_read({p.name}, sizeof *{p.name});")
            case Role.TEXT_IN:
                lines.append(f"  vgt_read({p.name}, strlen({p.name}));")
            case Role.OUT_HANDLE:
                lines.append(f"  *{p.name} = (__typeof__(*{p.name}))(uintptr_t)vgt_object();")
            case Role.HANDLES_OUT if p.kind:
                first = f"{p.name}[i] = vgt_first(VGW_KIND_{p.kind.name});"
                lines.append(f"  for (size_t i = 0; {p.name} && i < *{p.size}; i++)\n    {first}")
            case Role.FOUND if p.kind:
                lines.append(f"  *{p.name} = vgt_first(VGW_KIND_{p.kind.name});")
            case Role.BYTES_OUT:
                lines.append(f"  memset({p.name}, 7, {p.size});")
            case Role.HANDLE if p.kind and not p.optional:
                lines.append(f"  if (!{p.name}) return CUDA_ERROR_INVALID_HANDLE;")
            case _:
                lines.append(f"  (void){p.name};")
    return "\n".join([*lines, "  return vgt_result;\n}\n"])


def _custom(f: Function) -> str:
    head = custom_prototype(f).removesuffix(";\n")
    names = re.findall(r"(\w+)(?=[,)])", head[head.index("(") :])
    lines = [head + " {", f'  vgt_reach("vgx_{f.name}");', *(f"  (void){name};" for name in names)]
    for p in f.sent:
        match p.role:
            case Role.BYTES_IN:
                lines.append(f"  vgt_read({p.name}, req->{p.size});")
            case Role.TEXT_IN:
                lines.append(f"  vgt_read({p.name}, req->{p.name}_nbytes);")
            case Role.OUT_HANDLE:
                lines.append(f"  *{p.name} = (__typeof__(*{p.name}))(uintptr_t)vgt_object();")
            case Role.BYTES_OUT:
                lines.append(f"  memset({p.name}, 7, *{p.name}_nbytes);")
            case Role.HANDLE if p.kind and not p.optional:
                lines.append(f"  if (!{p.name}) return CUDA_ERROR_INVALID_HANDLE;")
    lines += ["  close(fd);"] if f.descriptor else []
    return "\n".join([*lines, "  return CUDA_SUCCESS;\n}\n"])


def emit(api: Api) -> str:
    members = api.backend_members()
    out = [HEAD]
    called = {f.member for f in api.travelling()}
    out += [_driver(f, called) + "\n" for f in members]
    out += [_hook(name, *hook) + "\n" for name, hook in HOOKS.items()]
    out.append(TAKE_OUTPUT + "\n")
    names = [*(f.name for f in members), *HOOKS, "take_output"]
    out += [_custom(f) + "\n" for f in api.travelling() if f.host_custom]
    out.append('struct vgx_backend vgt_backend = {\n    .name = "stubs",\n')
    out += [f"    .{name} = driver_{name},\n" for name in names]
    out.append("};\n\nvoid vgt_offer(const char *name, int offered) {\n")
    for name in names:
        out.append(f'  if (!strcmp(name, "{name}")) vgt_backend.{name} = offered ? driver_{name} : NULL;\n')
    out.append("}\n")
    return "".join(out)
