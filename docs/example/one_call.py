"""Follow calls from the program to their kernels, by the number that both records have; write a trace for Perfetto.

`vgpu run python3 docs/example/one_call.py trace.json`. This is what a profiler does by CUPTI: it asks for records of
the driver's calls and of kernels. In your program, torch.profiler or JAX's profiler do it for you.
"""

import ctypes
import json
import struct
import sys
from ctypes import byref, c_size_t, c_void_p

API, KERNEL = 4, 10  # CUpti_ActivityKind; cupti_activity.h has the layouts that are read below
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry fill(.param .u64 p)
{
  .reg .b32 %i; .reg .b64 %a;
  ld.param.u64 %a, [p]; cvta.to.global.u64 %a, %a; mov.u32 %i, %tid.x; st.global.u32 [%a], %i; ret;
}
"""
cuda, cupti = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcupti.so.13")
calls, kernels, buffers = {}, [], {}


def ok(result: int) -> None:
    assert result == 0, f"answered {result}"


@ctypes.CFUNCTYPE(None, ctypes.POINTER(c_void_p), ctypes.POINTER(c_size_t), ctypes.POINTER(c_size_t))
def request(buffer, nbytes, most) -> None:
    made = (ctypes.c_uint64 * 8192)()
    buffer[0], nbytes[0], most[0] = ctypes.addressof(made), ctypes.sizeof(made), 0
    buffers[buffer[0]] = made


@ctypes.CFUNCTYPE(None, c_void_p, ctypes.c_uint32, c_void_p, c_size_t, c_size_t)
def complete(_context, _stream, buffer, _nbytes, valid) -> None:
    record = c_void_p()
    while cupti.cuptiActivityGetNextRecord(c_void_p(buffer), c_size_t(valid), byref(record)) == 0:
        raw = ctypes.string_at(record.value, 112)
        if raw[0] == API:
            function, begin, end, _process, thread, number = struct.unpack_from("<IQQIII", raw, 4)
            name = ctypes.c_char_p()
            ok(cupti.cuptiGetCallbackName(1, function, byref(name)))
            calls[number] = name.value.decode(), begin, end, thread
        elif raw[0] == KERNEL:
            (begin, end), (number,), (name,) = (
                struct.unpack_from(layout, raw, offset) for layout, offset in (("<QQ", 16), ("<I", 92), ("<Q", 104))
            )
            kernels.append((number, ctypes.string_at(name).decode(), begin, end))


def work() -> None:
    """Launch a kernel twice."""
    context, module, kernel, place = c_void_p(), c_void_p(), c_void_p(), ctypes.c_uint64()
    ok(cuda.cuInit(0))
    ok(cuda.cuDevicePrimaryCtxRetain(byref(context), 0))
    ok(cuda.cuCtxSetCurrent(context))
    ok(cuda.cuModuleLoadData(byref(module), PTX))
    ok(cuda.cuModuleGetFunction(byref(kernel), module, b"fill"))
    ok(cuda.cuMemAlloc_v2(byref(place), c_size_t(4096)))
    arguments = (c_void_p * 1)(ctypes.addressof(place))
    for _ in range(2):
        ok(cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, None, arguments, None))
    ok(cuda.cuCtxSynchronize())


ok(cupti.cuptiActivityRegisterCallbacks(request, complete))
for kind in (API, KERNEL):
    ok(cupti.cuptiActivityEnable(kind))
work()
ok(cupti.cuptiActivityFlushAll(1))
events = []
for number, kernel, begin, end in sorted(kernels):
    call, called, returned, thread = calls[number]
    print(f"{number}: {call} took {(returned - called) / 1e3:.1f} us; ", end="")
    print(f"{kernel} began {(begin - called) / 1e3:.1f} us after its begin and took {(end - begin) / 1e3:.1f} us")
    rows = (("cuda_driver", call, thread, called, returned), ("kernel", kernel, 0, begin, end))
    for (category, name, row, start, stop), phase in zip(rows, "sf", strict=True):
        place = {"pid": 1, "tid": row, "ts": start / 1e3, "args": {"correlation": number}}
        events.append(place | {"ph": "X", "cat": category, "name": name, "dur": (stop - start) / 1e3})
        events.append(place | {"ph": phase, "cat": "launch", "name": "launch", "id": number, "bp": "e"})
if len(sys.argv) > 1:
    with open(sys.argv[1], "w") as file:
        json.dump({"traceEvents": events}, file)
