"""What a driver answers to images that it cannot compile, link or load: `python3 tests/gpu/jit_errors.py [LIBCUDA]`.

Prints one JSON object for each question: the calls with their results, and the JIT compiler's logs. The answers of a
card are in tests/shim/oracle/jit_errors.jsonl; tests/shim/test_jit_errors.py compares the simulator's with them.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path

HEADER = ".version 7.0\n.target sm_75\n.address_size 64\n"
CALL = """{ .param .b32 p; .param .b32 q; st.param.b32 [p], %r1; call.uni (q), absent, (p); ld.param.b32 %r2, [q]; }"""
PROTOTYPE = ".extern .func (.param .b32 r) absent(.param .b32 x);\n"
VARIABLE = ".extern .global .align 4 .u32 nowhere;\n"
FUNCTION = "(.param .b32 r) absent(.param .b32 x) { .reg .b32 %a; ld.param.b32 %a, [x]; st.param.b32 [r], %a; ret; }\n"


def kernel(body: str = "", name: str = "k") -> str:
    return f""".visible .entry {name}(.param .u64 a) {{
  .reg .b32 %r<3>; .reg .b64 %rd<2>; .reg .f64 %fd<2>;
  mov.u32 %r1, 3; mov.u32 %r2, %r1; ld.param.u64 %rd1, [a];
  {body}
  st.global.u32 [%rd1], %r2;
  ret;
}}
"""


PTX = {
    "good": HEADER + kernel(),
    "unknown instruction": HEADER + kernel("bogus.u32 %r1;"),
    "unknown register": HEADER + kernel("add.u32 %r2, %r1, %zz;"),
    "wrong type": HEADER + kernel("add.f64 %r2, %r1, %fd1;"),
    "missing semicolon": HEADER + kernel("add.u32 %r2, %r1, %r1"),
    "unclosed brace": HEADER + kernel()[:-2],
    "instruction of a later target": HEADER + kernel("redux.sync.add.u32 %r2, %r1, 0xffffffff;"),
    "unknown target": HEADER.replace("sm_75", "sm_999") + kernel(),
    "target newer than the card": HEADER.replace("7.0", "8.7").replace("sm_75", "sm_120") + kernel(),
    "version newer than the driver": HEADER.replace("7.0", "99.0") + kernel(),
    "unresolved function": HEADER + PROTOTYPE + kernel(CALL),
    "unresolved function, declared only": HEADER + PROTOTYPE + kernel(),
    "unresolved function, called by dead code": HEADER
    + PROTOTYPE
    + ".func helper() { .reg .b32 %r<3>; mov.u32 %r1, 3; "
    + CALL
    + " ret; }\n"
    + kernel(),
    "unresolved variable": HEADER + VARIABLE + kernel("ld.global.u32 %r2, [nowhere];"),
    "unresolved variable, declared only": HEADER + VARIABLE + kernel(),
    "both unresolved": HEADER + PROTOTYPE + VARIABLE + kernel(CALL + " ld.global.u32 %r2, [nowhere];"),
    "definition": HEADER + ".visible .func " + FUNCTION,
    "same kernel": HEADER + kernel(),
}
BINARY = {
    "text": b"this is not an image\0",
    "empty": b"\0" * 64,
    "host program": b"\x7fELF\2\1\1" + b"\0" * 9 + b"\2\0\x3e\0" + b"\0" * 44,
    "fatbin without entries": b"\x50\xed\x55\xba\1\0\x10\0" + b"\0" * 8,
    "fatbin, truncated": b"\x50\xed\x55\xba\1\0\x10\0"
    + (4096).to_bytes(8, "little")
    + b"\2\0\1\1\x40\0\0\0"
    + b"\0" * 8,
}
LOADED = tuple(name for name in PTX if name not in ("definition", "same kernel"))
LINKED: dict[str, tuple[str, ...]] = {name: (name,) for name in LOADED} | {
    "resolved by another input": ("unresolved function", "definition"),
    "defined twice": ("good", "same kernel"),
    "function defined twice": ("definition", "definition"),
    "two unresolved": ("unresolved function", "unresolved variable"),
}


class Logs:
    """Options of a JIT compilation with both log buffers."""

    def __init__(self, nbytes: int = 4096) -> None:
        self.info, self.error = ctypes.create_string_buffer(nbytes), ctypes.create_string_buffer(nbytes)
        self.options = (c_int * 4)(3, 4, 5, 6)
        self.values = (c_void_p * 4)(ctypes.addressof(self.info), nbytes, ctypes.addressof(self.error), nbytes)

    def texts(self) -> dict[str, object]:
        return {
            "info": self.info.value.decode("latin-1"),
            "error": self.error.value.decode("latin-1"),
            "info_nbytes": self.values[1] or 0,
            "error_nbytes": self.values[3] or 0,
        }


def data_of(name: str) -> bytes:
    return PTX[name].encode() + b"\0" if name in PTX else BINARY[name]


def loads(cuda: ctypes.CDLL, name: str) -> dict[str, object]:
    data, calls, logs = data_of(name), [], Logs()
    module, library, kernel_, function = c_void_p(), c_void_p(), c_void_p(), c_void_p()
    result = cuda.cuModuleLoadData(byref(module), data)
    calls.append(("cuModuleLoadData", result))
    if not result:
        calls.append(("cuModuleGetFunction", cuda.cuModuleGetFunction(byref(function), module, b"k")))
    calls.append(("cuModuleLoadDataEx", cuda.cuModuleLoadDataEx(byref(module), data, 4, logs.options, logs.values)))
    library_logs = Logs()
    result = cuda.cuLibraryLoadData(byref(library), data, library_logs.options, library_logs.values, 4, None, None, 0)
    calls.append(("cuLibraryLoadData", result))
    if not result:
        result = cuda.cuLibraryGetKernel(byref(kernel_), library, b"k")
        calls.append(("cuLibraryGetKernel", result))
        if not result:
            calls.append(("cuKernelGetFunction", cuda.cuKernelGetFunction(byref(function), kernel_)))
    return {"calls": calls, "module": logs.texts(), "library": library_logs.texts()}


def links(cuda: ctypes.CDLL, names: tuple[str, ...], kind: int, by_file: bool) -> dict[str, object]:
    logs, calls, state = Logs(), [], c_void_p()
    calls.append(("cuLinkCreate", cuda.cuLinkCreate_v2(4, logs.options, logs.values, byref(state))))
    for i, name in enumerate(names):
        data = data_of(name)
        if by_file:
            with tempfile.NamedTemporaryFile(suffix=".ptx") as file:
                file.write(data.rstrip(b"\0") if kind == 1 else data)
                file.flush()
                result = cuda.cuLinkAddFile_v2(state, kind, file.name.encode(), 0, None, None)
        else:
            result = cuda.cuLinkAddData_v2(state, kind, data, c_size_t(len(data)), f"part{i}".encode(), 0, None, None)
        calls.append(("cuLinkAddFile" if by_file else "cuLinkAddData", result))
    after_add = logs.texts()
    image, nbytes, module = c_void_p(), c_size_t(), c_void_p()
    result = cuda.cuLinkComplete(state, byref(image), byref(nbytes))
    calls.append(("cuLinkComplete", result))
    if not result:
        calls.append(("cuModuleLoadData", cuda.cuModuleLoadData(byref(module), image)))
    calls.append(("cuLinkDestroy", cuda.cuLinkDestroy(state)))
    return {"calls": calls, "after_add": after_add, "after_complete": logs.texts()}


def main() -> None:
    cuda = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libcuda.so.1")
    context, device, name = c_void_p(), c_int(), ctypes.create_string_buffer(100)
    assert cuda.cuInit(0) == 0
    assert cuda.cuDeviceGet(byref(device), 0) == 0
    assert cuda.cuCtxCreate_v2(byref(context), c_uint(0), device) == 0
    assert cuda.cuDeviceGetName(name, 100, device) == 0
    version = c_int()
    cuda.cuDriverGetVersion(byref(version))
    print(json.dumps({"card": name.value.decode(), "driver": version.value}))
    for name_ in (*LOADED, *BINARY):
        print(json.dumps({"load": name_, **loads(cuda, name_)}), flush=True)
    for name_, parts in LINKED.items():
        print(json.dumps({"link": name_, **links(cuda, parts, 1, by_file=False)}), flush=True)
    for name_ in ("unknown instruction", "unresolved function"):
        print(json.dumps({"link file": name_, **links(cuda, (name_,), 1, by_file=True)}), flush=True)
    for kind, kind_name in ((0, "cubin"), (2, "fatbinary"), (3, "object"), (4, "library")):
        for name_ in BINARY:
            print(json.dumps({"link " + kind_name: name_, **links(cuda, (name_,), kind, by_file=False)}), flush=True)
    state = c_void_p()
    cuda.cuLinkCreate_v2(0, None, None, byref(state))
    absent = str(Path(tempfile.gettempdir(), "no-such-file")).encode()
    print(json.dumps({"absent file": cuda.cuLinkAddFile_v2(state, 1, c_char_p(absent), 0, None, None)}))


if __name__ == "__main__":
    main()
