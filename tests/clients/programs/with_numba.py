"""numba-cuda: kernels written in Python, through NVVM and the driver's linker; shared memory, atomics, mathematics."""

import math

import numpy as np
from numba import cuda, float32

BLOCK = 128
N = 5003


@cuda.jit
def curve(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = math.sin(x[i]) * math.sqrt(x[i]) + x[i] ** 2


@cuda.jit
def block_sums(x, sums):
    shared = cuda.shared.array(BLOCK, float32)
    i = cuda.grid(1)
    lane = cuda.threadIdx.x
    shared[lane] = x[i] if i < x.size else 0
    cuda.syncthreads()
    step = BLOCK // 2
    while step > 0:
        if lane < step:
            shared[lane] += shared[lane + step]
        cuda.syncthreads()
        step //= 2
    if lane == 0:
        sums[cuda.blockIdx.x] = shared[0]


@cuda.jit
def count(digits, bins):
    i = cuda.grid(1)
    if i < digits.size:
        cuda.atomic.add(bins, digits[i], 1)


random = np.random.default_rng(11)
print("device:", cuda.get_current_device().name)
blocks = (N + BLOCK - 1) // BLOCK

x = random.uniform(0, 10, N)
y = np.zeros_like(x)
curve[blocks, BLOCK](x, y)
assert np.allclose(y, np.sin(x) * np.sqrt(x) + x**2, rtol=1e-12), "curve"

whole = random.integers(-50, 50, N).astype(np.float32)
sums = cuda.device_array(blocks, np.float32)
block_sums[blocks, BLOCK](cuda.to_device(whole), sums)
padded = np.zeros(blocks * BLOCK, np.float32)
padded[:N] = whole
assert np.array_equal(sums.copy_to_host(), padded.reshape(blocks, BLOCK).sum(axis=1)), "block_sums"

digits = random.integers(0, 10, N)
bins = cuda.to_device(np.zeros(10, np.int64))
count[blocks, BLOCK](cuda.to_device(digits), bins)
assert np.array_equal(bins.copy_to_host(), np.bincount(digits, minlength=10)), "count"
print("ok numba")
