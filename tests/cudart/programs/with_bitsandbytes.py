"""`with_bitsandbytes.py LIBRARY RUNTIME bind|compute`: call the C functions of one build of bitsandbytes.

`compute` quantises and dequantises numbers in 8-bit blocks: the error is at most half a step of the block's scale.
"""

import ctypes
import os
import random
import sys
from ctypes import byref, c_float, c_int, c_size_t, c_ubyte, c_void_p

library, runtime_name, task = sys.argv[1:]
bnb = ctypes.CDLL(library, mode=os.RTLD_NOW)
runtime = ctypes.CDLL(runtime_name)
count = c_int()
assert runtime.cudaGetDeviceCount(byref(count)) == 0
assert count.value == 1

BLOCK, N, TO_DEVICE, TO_HOST = 256, 1000, 1, 2


def on_device(data: ctypes.Array) -> c_void_p:
    pointer, nbytes = c_void_p(), c_size_t(ctypes.sizeof(data))
    assert runtime.cudaMalloc(byref(pointer), nbytes) == 0
    assert runtime.cudaMemcpy(pointer, data, nbytes, TO_DEVICE) == 0
    return pointer


def fetch(data: ctypes.Array, pointer: c_void_p) -> None:
    assert runtime.cudaMemcpy(data, pointer, c_size_t(ctypes.sizeof(data)), TO_HOST) == 0


def compute() -> None:
    blocks = (N + BLOCK - 1) // BLOCK
    code = (c_float * 256)(*(-1 + 2 * i / 255 for i in range(256)))  # the value of each 8-bit code
    values = (c_float * N)(*(random.uniform(-3, 3) for _ in range(N)))
    scales, stored, back = (c_float * blocks)(), (c_ubyte * N)(), (c_float * N)()
    code_d, values_d, scales_d, stored_d, back_d = map(on_device, (code, values, scales, stored, back))
    bnb.cquantize_blockwise_fp32(code_d, values_d, scales_d, stored_d, c_int(BLOCK), c_int(N))
    bnb.cdequantize_blockwise_fp32(code_d, stored_d, scales_d, back_d, c_int(BLOCK), c_int(N), None)
    assert runtime.cudaDeviceSynchronize() == 0
    assert runtime.cudaGetLastError() == 0
    fetch(scales, scales_d)
    fetch(back, back_d)
    for i in range(N):
        largest = max(abs(v) for v in values[i // BLOCK * BLOCK : (i // BLOCK + 1) * BLOCK])
        assert abs(scales[i // BLOCK] - largest) < 1e-5, (i, scales[i // BLOCK], largest)
        assert abs(back[i] - values[i]) <= largest / 255 * 1.01, (i, back[i], values[i])


if task == "compute":
    compute()
print("ok bitsandbytes")
