"""Planted faults that numba compiles: `faults_numba.py NAME` runs one, without a name they are listed as in
faults.cu."""

import sys
import warnings

import numpy as np
from numba import cuda, int32

warnings.simplefilter("ignore")


@cuda.jit
def store(p, shift):
    p[cuda.grid(1) + shift] = 1


@cuda.jit
def load(p, shift, out):
    out[cuda.grid(1)] = p[cuda.grid(1) + shift]


@cuda.jit
def add_one(p, at):
    cuda.atomic.add(p, at, 1)


@cuda.jit
def reverse(p, right):
    s = cuda.shared.array(256, int32)
    t = cuda.threadIdx.x
    s[t] = p[t]
    if right:
        cuda.syncthreads()
    p[t] = s[255 - t]


@cuda.jit
def total(p, out, right):
    if right:
        cuda.atomic.add(out, 0, p[cuda.grid(1)])
    else:
        out[0] += p[cuda.grid(1)]


@cuda.jit
def half_written(out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    if t < 32:
        s[t] = t
    cuda.syncthreads()
    out[t] = s[t]


@cuda.jit
def half_a_warp(p):
    if cuda.threadIdx.x < 16:
        cuda.syncthreads()
    p[cuda.threadIdx.x] = 1


@cuda.jit
def matrix(a, out):
    s = cuda.shared.array((16, 17), int32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    s[y, x] = a[y, x]
    cuda.syncthreads()
    out[x, y] = s[x, y]


def zeros(count):
    return cuda.to_device(np.zeros(count, np.int32))


CASES = {
    "numba-store-past": ("memcheck", "invalid", lambda: store[1, 64](zeros(64), 1)),
    "numba-load-past": ("memcheck", "invalid", lambda: load[1, 64](zeros(64), 8, zeros(64))),
    "numba-atomic-past": ("memcheck", "invalid", lambda: add_one[1, 32](zeros(64), 64)),
    "numba-unwritten": ("initcheck", "uninitialised",
                        lambda: load[1, 64](cuda.device_array(64, np.int32), 0, zeros(64))),
    "numba-shared-half": ("initcheck", "uninitialised", lambda: half_written[1, 64](zeros(64))),
    "numba-reverse": ("racecheck", "race", lambda: reverse[1, 256](zeros(256), False)),
    "numba-total": ("racecheck", "race",
                    lambda: total[8, 64](cuda.to_device(np.ones(512, np.int32)), zeros(1), False)),
    "numba-half-a-warp": ("synccheck", "barrier", lambda: half_a_warp[1, 32](zeros(32))),
    "ok-numba-store": ("none", "", lambda: store[1, 64](zeros(64), 0)),
    "ok-numba-reverse": ("none", "", lambda: reverse[1, 256](zeros(256), True)),
    "ok-numba-total": ("none", "", lambda: total[8, 64](cuda.to_device(np.ones(512, np.int32)), zeros(1), True)),
    "ok-numba-matrix": ("none", "",
                        lambda: matrix[1, (16, 16)](zeros(256).reshape(16, 16), zeros(256).reshape(16, 16))),
}  # fmt: skip

if len(sys.argv) < 2:
    for name, (tool, kind, _) in CASES.items():
        print(name, tool, kind)
else:
    try:
        CASES[sys.argv[1]][2]()
        cuda.synchronize()
    except Exception as error:
        print(error)
