"""Planted faults that Triton compiles: `faults_triton.py NAME` runs one, without a name they are listed as in
faults.cu."""

import ctypes
import sys

import numpy as np
import triton
import triton.language as tl

libcuda = ctypes.CDLL("libcuda.so.1" if len(sys.argv) > 1 else None)


@triton.jit
def add(x, y, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@triton.jit
def add_unmasked(x, y, out, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + i, tl.load(x + i) + tl.load(y + i))


@triton.jit
def gather(index, x, out, block: tl.constexpr):
    i = tl.arange(0, block)
    tl.store(out + i, tl.load(x + tl.load(index + i)))


@triton.jit
def total(x, out, right: tl.constexpr, block: tl.constexpr):
    value = tl.sum(tl.load(x + tl.program_id(0) * block + tl.arange(0, block)), 0)
    if right:
        tl.atomic_add(out, value)
    else:
        tl.store(out, tl.load(out) + value)


@triton.jit
def shifted(x, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(x + i, tl.load(x + i + 1) + 1)


@triton.jit
def softmax(x, out, n, block: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, block)
    value = tl.load(x + row * n + i, i < n, -float("inf"))
    top = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * n + i, top / tl.sum(top, 0), i < n)


@triton.jit
def matmul(a, b, c, n: tl.constexpr, block: tl.constexpr):
    rows, columns = tl.program_id(0) * block + tl.arange(0, block), tl.program_id(1) * block + tl.arange(0, block)
    sums = tl.zeros((block, block), tl.float32)
    for start in range(0, n, block):
        k = start + tl.arange(0, block)
        sums = tl.dot(tl.load(a + rows[:, None] * n + k[None, :]), tl.load(b + k[:, None] * n + columns[None, :]), sums)
    tl.store(c + rows[:, None] * n + columns[None, :], sums)


class Array:
    """What Triton needs of a tensor: floats, or numbers of elements; `written`: whether they are zero."""

    def __init__(self, count, dtype="float32", written=True, value=0):
        self.dtype, self.shape, self.address = np.dtype(dtype), (count,), ctypes.c_uint64()
        cuda = triton.runtime.driver.active
        cuda.set_current_device(cuda.get_current_device())
        data = np.full(count, value, self.dtype)
        libcuda.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(data.nbytes))
        if written:
            libcuda.cuMemcpyHtoD_v2(self.address, data.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(data.nbytes))

    def data_ptr(self):
        return self.address.value


CASES = {
    "triton-store-past": ("memcheck", "invalid",
                          lambda: add_unmasked[(2,)](Array(256), Array(256), Array(200), block=128)),
    "triton-load-past": ("memcheck", "invalid",
                         lambda: add_unmasked[(2,)](Array(200), Array(256), Array(256), block=128)),
    "triton-wrong-mask": ("memcheck", "invalid", lambda: add[(2,)](Array(256), Array(256), Array(200), 201, block=128)),
    "triton-gather": ("memcheck", "invalid",
                      lambda: gather[(1,)](Array(128, "int32", value=5000), Array(128), Array(128), block=128)),
    "triton-unwritten": ("initcheck", "uninitialised",
                         lambda: add[(2,)](Array(256, written=False), Array(256), Array(256), 256, block=128)),
    "triton-total": ("racecheck", "race", lambda: total[(4,)](Array(512), Array(1), False, block=128)),
    "triton-shifted": ("racecheck", "race", lambda: shifted[(4,)](Array(513), block=128)),
    "ok-triton-add": ("none", "", lambda: add[(2,)](Array(200), Array(200), Array(200), 200, block=128)),
    "ok-triton-total": ("none", "", lambda: total[(4,)](Array(512), Array(1), True, block=128)),
    "ok-triton-softmax": ("none", "", lambda: softmax[(4,)](Array(400), Array(400), 100, block=128)),
    "ok-triton-matmul": ("none", "", lambda: matmul[(2, 2)](Array(4096, "float16"), Array(4096, "float16"), Array(4096),
                                                            64, block=32)),
}  # fmt: skip

if len(sys.argv) < 2:
    for name, (tool, kind, _) in CASES.items():
        print(name, tool, kind)
else:
    try:
        CASES[sys.argv[1]][2]()
        print(libcuda.cuCtxSynchronize())
    except Exception as error:
        print(error)
