"""The driver API through ctypes alone; the argument is what to do: `allocate`, `fork`, `spin` (an endless kernel)."""

import ctypes
import os
import sys
import time

CUDA = ctypes.CDLL("libcuda.so.1")
SPIN = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 p) {
  .reg .u64 %rd<3>;
  .reg .u32 %r<2>;
  .reg .pred %q;
  ld.param.u64 %rd1, [p];
loop:
  ld.volatile.global.u32 %r1, [%rd1];
  setp.eq.u32 %q, %r1, 0;
  @%q bra loop;
  ret;
}
"""


def call(name: str, *arguments: object) -> None:
    code = getattr(CUDA, name)(*arguments)
    assert code == 0, f"{name}: {code}"


def allocate() -> ctypes.c_uint64:
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
    call("cuMemsetD32_v2", pointer, 0, ctypes.c_size_t(1 << 18))
    call("cuCtxSynchronize")
    return pointer


def fork() -> None:
    allocate()
    if os.fork() == 0:
        print("child:", CUDA.cuCtxSynchronize(), flush=True)
        time.sleep(1000)
    time.sleep(1000)


def spin() -> None:
    pointer = allocate()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), SPIN)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"spin")
    arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(pointer), ctypes.c_void_p))
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
    print("launched", flush=True)
    call("cuCtxSynchronize")


if sys.argv[1] == "allocate":
    allocate()
    print("allocated", flush=True)
    time.sleep(1000)
else:
    {"fork": fork, "spin": spin}[sys.argv[1]]()
