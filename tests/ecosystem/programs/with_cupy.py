"""CuPy compared with numpy: its own kernels, and cuBLAS, cuFFT, cuRAND, cuSOLVER, cuSPARSE. Arguments: parts to run."""

import sys

import cupy as cp
import cupyx.scipy.sparse as sparse
import numpy as np
from report import check, finish

rng = np.random.default_rng(0)
A = rng.normal(size=(64, 64)).astype("f4")
S = (A @ A.T + 64 * np.eye(64)).astype("f4")
v, few = A[0], np.where(A > 1, A, 0)
a, s, w = cp.asarray(A), cp.asarray(S), cp.asarray(v)


def on_host(compute):
    return lambda: cp.asnumpy(compute())


def elementwise():
    check("a * 2 + 1", on_host(lambda: a * 2 + 1), A * 2 + 1)
    check("sin", on_host(lambda: cp.sin(a)), np.sin(A))
    kernel = cp.RawKernel(r'extern "C" __global__ void k(float *o) { o[threadIdx.x] = threadIdx.x * 2.f; }', "k")
    out = cp.zeros(32, "f4")
    kernel((1,), (32,), (out,))
    check("RawKernel", on_host(lambda: out), np.arange(32) * 2.0)


def reductions():
    ones = cp.ones(10000)
    check("sum of ones (GR6)", on_host(lambda: ones.sum()), 10000)
    check("mean", on_host(lambda: ones.mean()), 1)
    check("cumsum", on_host(lambda: cp.cumsum(w)), np.cumsum(v))
    check("sum by axis", on_host(lambda: a.sum(0)), A.sum(0))
    check("sort", on_host(lambda: cp.sort(w)), np.sort(v))
    check("histogram", on_host(lambda: cp.histogram(w, 8)[0]), np.histogram(v, 8)[0])


def linalg():
    check("matmul f32", on_host(lambda: a @ a), A @ A, 1e-3)
    d = A.astype("f8")
    check("matmul f64", on_host(lambda: cp.asarray(d) @ cp.asarray(d)), d @ d, 1e-10)
    c = (A + 1j * A.T).astype("c8")
    check("matmul c64", on_host(lambda: cp.asarray(c) @ cp.asarray(c)), c @ c, 1e-2)
    check("cholesky", on_host(lambda: cp.linalg.cholesky(s)), np.linalg.cholesky(S))
    check("solve", on_host(lambda: cp.linalg.solve(s, w)), np.linalg.solve(S, v))
    check("eigvalsh", on_host(lambda: cp.linalg.eigvalsh(s)), np.linalg.eigvalsh(S), 1e-3)
    check("svd", on_host(lambda: cp.linalg.svd(a, compute_uv=False)), np.linalg.svd(A, compute_uv=False), 1e-3)
    check("qr", on_host(lambda: cp.abs(cp.diag(cp.linalg.qr(a)[1]))), np.abs(np.diag(np.linalg.qr(A)[1])), 1e-3)


def fft():
    check("fft", on_host(lambda: cp.fft.fft(w)), np.fft.fft(v), 1e-3)
    check("fft2", on_host(lambda: cp.fft.fft2(a)), np.fft.fft2(A), 1e-2)
    check("rfft of 100", on_host(lambda: cp.fft.rfft(a.ravel()[:100])), np.fft.rfft(A.ravel()[:100]), 1e-3)


def random():
    check("rand", on_host(lambda: cp.random.rand(10000).mean()), 0.5, 0.05)
    check("normal", on_host(lambda: cp.random.normal(size=10000).std()), 1, 0.05)
    check("Generator", on_host(lambda: cp.random.default_rng(1).random(1000).mean()), 0.5, 0.05)


def of_sparse():
    m = sparse.csr_matrix(cp.asarray(few))
    check("csr @ vector", on_host(lambda: m @ w), few @ v, 1e-3)
    check("csr @ csr", on_host(lambda: (m @ m).toarray()), few @ few, 1e-3)
    check("coo to csr", on_host(lambda: sparse.coo_matrix(cp.asarray(few)).tocsr().toarray()), few)


PARTS = {f.__name__.removeprefix("of_"): f for f in (elementwise, reductions, linalg, fft, random, of_sparse)}
for part in sys.argv[1:] or PARTS:
    PARTS[part]()
print("cupy", cp.__version__, "device", cp.cuda.Device().compute_capability)
finish("cupy")
