"""Triton's usual kernels: vector add, softmax, matmul, layer norm, dropout, attention.

Arguments: `torch` passes torch's tensors, without it Triton runs alone; `small` runs only the first three kernels.
"""

import ctypes
import sys

import numpy as np
import triton
import triton.language as tl
from report import check, finish

rng = np.random.default_rng(0)


@triton.jit
def add(x, y, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@triton.jit
def softmax(x, out, n, block: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, block)
    value = tl.load(x + row * n + i, i < n, -float("inf"))
    top = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * n + i, top / tl.sum(top, 0), i < n)


@triton.jit
def matmul(a, b, c, n: tl.constexpr, block: tl.constexpr):
    rows, columns = tl.program_id(0) * block + tl.arange(0, block), tl.program_id(1) * block + tl.arange(0, block)
    total = tl.zeros((block, block), tl.float32)
    for start in range(0, n, block):
        k = start + tl.arange(0, block)
        total = tl.dot(
            tl.load(a + rows[:, None] * n + k[None, :]), tl.load(b + k[:, None] * n + columns[None, :]), total
        )
    tl.store(c + rows[:, None] * n + columns[None, :], total)


@triton.jit
def layer_norm(x, out, n, block: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, block)
    value = tl.load(x + row * n + i, i < n, 0.0)
    mean = tl.sum(value, 0) / n
    rest = tl.where(i < n, value - mean, 0.0)
    tl.store(out + row * n + i, rest / tl.sqrt(tl.sum(rest * rest, 0) / n + 1e-5), i < n)


@triton.jit
def dropout(x, out, n, p, seed, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    kept = tl.rand(seed, i) > p
    tl.store(out + i, tl.where(kept, tl.load(x + i, i < n) / (1 - p), 0.0), i < n)


@triton.jit
def attention(q, k, v, out, n: tl.constexpr, width: tl.constexpr, block: tl.constexpr):
    rows, d = tl.program_id(0) * block + tl.arange(0, block), tl.arange(0, width)
    query = tl.load(q + rows[:, None] * width + d[None, :])
    top = tl.full((block,), -float("inf"), tl.float32)
    weight, total = tl.zeros((block,), tl.float32), tl.zeros((block, width), tl.float32)
    for start in range(0, n, block):
        i = start + tl.arange(0, block)
        score = tl.dot(query, tl.load(k + d[:, None] + i[None, :] * width)) / tl.sqrt(width + 0.0)
        higher = tl.maximum(top, tl.max(score, 1))
        part, old = tl.exp(score - higher[:, None]), tl.exp(top - higher)
        weight = weight * old + tl.sum(part, 1)
        total = tl.dot(part.to(tl.float16), tl.load(v + i[:, None] * width + d[None, :]), total * old[:, None])
        top = higher
    tl.store(out + rows[:, None] * width + d[None, :], total / weight[:, None])


class Array:
    """What Triton needs of a tensor, over driver memory that lives as long as the program."""

    def __init__(self, array):
        self.dtype, self.shape, self.address = array.dtype, array.shape, ctypes.c_uint64()
        cuda = triton.runtime.driver.active
        cuda.set_current_device(cuda.get_current_device())
        ok(libcuda.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(array.nbytes)))
        data = np.ascontiguousarray(array)
        ok(libcuda.cuMemcpyHtoD_v2(self.address, data.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(data.nbytes)))

    def data_ptr(self):
        return self.address.value

    def cpu(self):
        host = np.empty(self.shape, self.dtype)
        ok(libcuda.cuMemcpyDtoH_v2(host.ctypes.data_as(ctypes.c_void_p), self.address, ctypes.c_size_t(host.nbytes)))
        return host


def ok(result):
    assert result == 0, result


if "torch" in sys.argv[1:]:
    import torch

    print("torch", torch.__version__)
    on_device = lambda array: torch.from_numpy(array).cuda()  # noqa: E731
else:
    libcuda = ctypes.CDLL("libcuda.so.1")
    ok(libcuda.cuInit(0))
    on_device = Array


def fresh(*shape):
    return on_device(np.zeros(shape, "f4"))


x, y, m = rng.normal(size=1000).astype("f4"), rng.normal(size=1000).astype("f4"), rng.normal(size=(8, 100)).astype("f4")
out = fresh(1000)
add[(8,)](on_device(x), on_device(y), out, 1000, block=128)
check("vector add", lambda: out.cpu(), x + y, 1e-6)
out = fresh(8, 100)
softmax[(8,)](on_device(m), out, 100, block=128)
e = np.exp(m - m.max(1, keepdims=True))
check("softmax", lambda: out.cpu(), e / e.sum(1, keepdims=True), 1e-6)
for kind, tolerance in (("f2", 2e-2), ("f4", 1e-1)):
    a, b = (rng.normal(size=(64, 64)).astype(kind) for _ in range(2))
    c = fresh(64, 64)
    matmul[(2, 2)](on_device(a), on_device(b), c, n=64, block=32)
    check(f"matmul {kind}", lambda c=c: c.cpu(), a.astype("f4") @ b.astype("f4"), tolerance)
if "small" in sys.argv[1:]:
    finish("triton")
    sys.exit()
out = fresh(8, 100)
layer_norm[(8,)](on_device(m), out, 100, block=128)
check("layer norm", lambda: out.cpu(), (m - m.mean(1, keepdims=True)) / np.sqrt(m.var(1, keepdims=True) + 1e-5), 1e-4)
out = fresh(1000)
dropout[(8,)](on_device(x), out, 1000, 0.25, 7, block=128)
host = np.asarray(out.cpu())
check("dropout", lambda: host[host != 0], (x / 0.75)[host != 0], 1e-5)
check("dropout's share", lambda: (host == 0).mean(), 0.25, 0.06)
q, k, v = (rng.normal(size=(64, 32)).astype("f2") for _ in range(3))
out = fresh(64, 32)
attention[(2,)](on_device(q), on_device(k), on_device(v), out, n=64, width=32, block=32)
score = q.astype("f4") @ k.astype("f4").T / 32**0.5
e = np.exp(score - score.max(1, keepdims=True))
check("attention", lambda: out.cpu(), e / e.sum(1, keepdims=True) @ v.astype("f4"), 1e-2)
print("triton", triton.__version__, sys.version.split()[0])
finish("triton")
