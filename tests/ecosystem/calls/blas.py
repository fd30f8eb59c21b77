"""cuBLAS: levels 1 to 3 in four types, strided and batched, and matrix products in half, integer and mixed types."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from .device import TOLERANCE, TYPES, Array, Call, Library, Long, Pair, data, dominant, empty, wide
from .narrow import BF16, F16, F32, F64, I8, I32, Kind

COMPUTE_F16, COMPUTE_F32, COMPUTE_TF32, COMPUTE_F64, COMPUTE_I32 = 64, 68, 77, 70, 72
OPERATIONS = {"N": 0, "T": 1, "C": 2}
ANY_ALGORITHM = -1


@cache
def library() -> Library:
    return Library("libcublasLt.so.13", "libcublas.so.13")


@cache
def handle() -> object:
    return library().handle("cublasCreate_v2")


def call(function: str, *arguments: object) -> None:
    library()(function, handle(), *arguments)


def turned(matrix: np.ndarray, operation: str) -> np.ndarray:
    return {"N": matrix, "T": matrix.T, "C": matrix.T.conj()}[operation]


def level1(letter: str, dtype: str, n: int, inc: int) -> Iterator[tuple[str, object]]:
    prefix = f"cublas{letter}"
    mixed = {"C": "cublasSc", "Z": "cublasDz"}.get(letter, prefix)
    real = np.dtype(dtype).type(0).real.dtype
    x, y = data(dtype, n * inc, seed="x"), data(dtype, n * inc, seed="y")
    xs, ys = wide(x)[::inc], wide(y)[::inc]
    alpha = np.dtype(dtype).type(0.75 - (0.5j if np.dtype(dtype).kind == "c" else 0))

    def axpy() -> Pair:
        out = Array(y)
        call(f"{prefix}axpy_v2", n, alpha, Array(x), inc, out, inc)
        return out.get()[::inc], alpha * xs + ys

    def scal() -> Pair:
        out = Array(x)
        call(f"{prefix}scal_v2", n, alpha, out, inc)
        return out.get()[::inc], alpha * xs

    def copy() -> Pair:
        out = Array(y)
        call(f"{prefix}copy_v2", n, Array(x), inc, out, inc)
        return out.get()[::inc], xs

    def swap() -> Pair:
        left, right = Array(x), Array(y)
        call(f"{prefix}swap_v2", n, left, inc, right, inc)
        return np.stack([left.get()[::inc], right.get()[::inc]]), np.stack([ys, xs])

    def dot() -> Pair:
        out = np.zeros((), dtype)
        call(f"{prefix}dot{'c' if letter in 'CZ' else ''}_v2", n, Array(x), inc, Array(y), inc, out)
        return out, np.vdot(xs, ys)

    def nrm2() -> Pair:
        out = np.zeros((), real)
        call(f"{mixed}nrm2_v2", n, Array(x), inc, out)
        return out, np.linalg.norm(xs)

    def asum() -> Pair:
        out = np.zeros((), real)
        call(f"{mixed}asum_v2", n, Array(x), inc, out)
        return out, (np.abs(xs.real) + np.abs(xs.imag)).sum()

    def iamax() -> Pair:
        out = np.zeros((), "i4")
        call(f"cublasI{letter.lower()}amax_v2", n, Array(x), inc, out)
        return out, 1 + np.argmax(np.abs(xs.real) + np.abs(xs.imag))

    def rot() -> Pair:
        left, right = Array(x), Array(y)
        c, s = real.type(0.6), np.dtype(dtype).type(0.8)
        call(f"{prefix}rot_v2", n, left, inc, right, inc, c, s)
        return np.stack([left.get()[::inc], right.get()[::inc]]), np.stack([c * xs + s * ys, c * ys - s * xs])

    for run in (axpy, scal, copy, swap, dot, nrm2, asum, iamax, rot):
        yield run.__name__, run


def level2(letter: str, dtype: str, m: int, n: int) -> Iterator[tuple[str, object]]:
    prefix, complex_ = f"cublas{letter}", letter in "CZ"
    one, half = (np.dtype(dtype).type(value) for value in (1, 0.5))
    a, x, y = data(dtype, m, n), data(dtype, n, seed="x"), data(dtype, m, seed="y")
    square = dominant(dtype, n)

    def gemv(operation: str) -> Pair:
        left, right = (x, y) if operation == "N" else (y, x)
        out = Array(right)
        call(f"{prefix}gemv_v2", OPERATIONS[operation], m, n, one, Array(a), m, Array(left), 1, half, out, 1)
        return out.get(), turned(wide(a), operation) @ wide(left) + 0.5 * wide(right)

    def ger() -> Pair:
        out = Array(a)
        call(f"{prefix}ger{'u' if complex_ else ''}_v2", m, n, one, Array(y), 1, Array(x), 1, out, m)
        return out.get(), wide(a) + np.outer(wide(y), wide(x))

    def symv() -> Pair:
        out = Array(np.zeros(n, dtype))
        call(f"{prefix}{'hemv' if complex_ else 'symv'}_v2", 0, n, one, Array(square), n, Array(x), 1, half, out, 1)
        low = np.tril(wide(square), -1)
        return out.get(), (low + low.T.conj() + np.diag(np.diag(wide(square)).real)) @ wide(x)

    def trmv() -> Pair:
        out = Array(x)
        call(f"{prefix}trmv_v2", 1, 0, 0, n, Array(square), n, out, 1)
        return out.get(), np.triu(wide(square)) @ wide(x)

    def trsv() -> Pair:
        out = Array(x)
        call(f"{prefix}trsv_v2", 0, 0, 0, n, Array(square), n, out, 1)
        return out.get(), np.linalg.solve(np.tril(wide(square)), wide(x))

    for operation in "NT" + "C" * complex_:
        yield f"gemv {operation}", lambda operation=operation: gemv(operation)
    for run in (ger, symv, trmv, trsv):
        yield run.__name__, run


def level3(letter: str, dtype: str, n: int) -> Iterator[tuple[str, object]]:
    prefix = f"cublas{letter}"
    one, half = (np.dtype(dtype).type(value) for value in (1, 0.5))
    a, b, c = (data(dtype, n, n, seed=seed) for seed in "abc")
    square = dominant(dtype, n)

    def gemm(left: str, right: str) -> Pair:
        out = Array(c)
        sides = OPERATIONS[left], OPERATIONS[right]
        call(f"{prefix}gemm_v2", *sides, n, n, n, one, Array(a), n, Array(b), n, half, out, n)
        return out.get(), turned(wide(a), left) @ turned(wide(b), right) + 0.5 * wide(c)

    def symm() -> Pair:
        out = Array(c)
        call(f"{prefix}symm_v2", 0, 0, n, n, one, Array(a), n, Array(b), n, half, out, n)
        low = np.tril(wide(a))
        return out.get(), (low + np.tril(low, -1).T) @ wide(b) + 0.5 * wide(c)

    def syrk() -> Pair:
        out = Array(c)
        call(f"{prefix}syrk_v2", 0, 0, n, n, one, Array(a), n, half, out, n)
        return np.tril(out.get()), np.tril(wide(a) @ wide(a).T + 0.5 * wide(c))

    def trmm() -> Pair:
        out = empty((n, n), dtype)
        call(f"{prefix}trmm_v2", 0, 1, 0, 0, n, n, one, Array(a), n, Array(b), n, out, n)
        return out.get(), np.triu(wide(a)) @ wide(b)

    def trsm() -> Pair:
        out = Array(b)
        call(f"{prefix}trsm_v2", 0, 0, 0, 0, n, n, one, Array(square), n, out, n)
        return out.get(), np.linalg.solve(np.tril(wide(square)), wide(b))

    def geam() -> Pair:
        out = empty((n, n), dtype)
        call(f"{prefix}geam", 0, 1, n, n, one, Array(a), n, half, Array(b), n, out, n)
        return out.get(), wide(a) + 0.5 * wide(b).T

    def dgmm() -> Pair:
        out = empty((n, n), dtype)
        call(f"{prefix}dgmm", 0, n, n, Array(a), n, Array(b[:, 0]), 1, out, n)
        return out.get(), wide(b)[:, :1] * wide(a)

    for sides in ("NN", "TN", "NT"):
        yield f"gemm {sides}", lambda sides=sides: gemm(*sides)
    for run in (symm, syrk, trmm, trsm, geam, dgmm):
        yield run.__name__, run


def batched(letter: str, dtype: str, n: int, count: int) -> Iterator[tuple[str, object]]:
    prefix = f"cublas{letter}"
    one, zero = (np.dtype(dtype).type(value) for value in (1, 0))
    a = np.stack([dominant(dtype, n, seed=f"{k}") for k in range(count)])
    b = np.stack([data(dtype, n, n, seed=f"b{k}") for k in range(count)])

    def listed(matrices: np.ndarray) -> tuple[list[Array], Array]:
        made = [Array(np.asfortranarray(matrix)) for matrix in matrices]
        return made, Array(np.array([part.address for part in made], "u8"))

    def gemm_batched() -> Pair:
        (_, left), (_, right), (out, results) = kept = listed(a), listed(b), listed(np.zeros_like(a))
        call(f"{prefix}gemmBatched", 0, 0, n, n, n, one, left, n, right, n, zero, results, n, count)
        del kept
        return np.stack([part.get() for part in out]), wide(a) @ wide(b)

    def getrf_batched() -> Pair:
        (_, inputs), (out, results) = kept = listed(a), listed(np.zeros_like(a))
        pivots, info = Array(np.zeros((count, n), "i4")), Array(np.full(count, 7, "i4"))
        call(f"{prefix}getrfBatched", n, inputs, n, pivots, info, count)
        call(f"{prefix}getriBatched", n, inputs, n, pivots, results, n, info, count)
        del kept
        return np.stack([part.get() for part in out]), np.linalg.inv(wide(a))

    def trsm_batched() -> Pair:
        (_, left), (out, results) = kept = listed(a), listed(b)
        call(f"{prefix}trsmBatched", 0, 0, 0, 0, n, n, one, left, n, results, n, count)
        del kept
        return np.stack([part.get() for part in out]), np.linalg.solve(np.tril(wide(a)), wide(b))

    for run in (gemm_batched, getrf_batched, trsm_batched):
        yield run.__name__, run


def product(kind: Kind, result: Kind, compute: int, sides: str, shape: tuple[int, int, int], batch: int) -> Pair:
    """Matrix product of small integers, which every type represents exactly, so that all results are exact."""
    m, n, k = shape
    rng = np.random.default_rng(m + n + k)
    a, b = rng.integers(-2, 3, (batch, m, k)), rng.integers(-2, 3, (batch, k, n))
    left = a if sides[0] == "T" else a.swapaxes(1, 2)  # cuBLAS expects column-major matrices
    right = b if sides[1] == "T" else b.swapaxes(1, 2)
    stored = [Array(kind.encode(np.ascontiguousarray(part))) for part in (left, right)]
    out = Array(result.encode(np.full((batch, n, m), 99)))
    scalar = {COMPUTE_F16: "f2", COMPUTE_F64: "f8", COMPUTE_I32: "i4"}.get(compute, "f4")
    one, zero = np.ones((), scalar), np.zeros((), scalar)
    rows = (k if sides[0] == "T" else m), (n if sides[1] == "T" else k)
    call(
        "cublasGemmStridedBatchedEx",
        OPERATIONS[sides[0]],
        OPERATIONS[sides[1]],
        m,
        n,
        k,
        one,
        stored[0],
        kind.code,
        rows[0],
        Long(m * k),
        stored[1],
        kind.code,
        rows[1],
        Long(k * n),
        zero,
        out,
        result.code,
        m,
        Long(m * n),
        batch,
        compute,
        ANY_ALGORITHM,
    )
    return result.decode(out.get()).swapaxes(1, 2), a @ b


def calls() -> Iterator[Call]:
    for letter, dtype in TYPES.items():
        tolerance = TOLERANCE[dtype]
        for n, inc in ((1000, 1), (77, 3)):
            for name, run in level1(letter, dtype, n, inc):
                yield Call(f"cublas{letter} {name} {n} inc {inc}", run, tolerance)
        for name, run in level2(letter, dtype, 65, 33):
            yield Call(f"cublas{letter} {name} 65x33", run, tolerance)
        for name, run in level3(letter, dtype, 48):
            yield Call(f"cublas{letter} {name} 48", run, tolerance)
        for name, run in batched(letter, dtype, 8, 5):
            yield Call(f"cublas{letter} {name} 8 x5", run, 10 * tolerance)
    for name, kind, result, compute in (
        ("f32", F32, F32, COMPUTE_F32),
        ("tf32", F32, F32, COMPUTE_TF32),
        ("f64", F64, F64, COMPUTE_F64),
        ("f16 to f32", F16, F32, COMPUTE_F32),
        ("f16", F16, F16, COMPUTE_F32),
        ("f16 in f16", F16, F16, COMPUTE_F16),
        ("bf16 to f32", BF16, F32, COMPUTE_F32),
        ("bf16", BF16, BF16, COMPUTE_F32),
        ("s8 to s32", I8, I32, COMPUTE_I32),
        ("s8 to f32", I8, F32, COMPUTE_F32),
    ):
        for sides, shape, batch in (("NN", (64, 64, 64), 1), ("TN", (64, 32, 64), 1), ("NN", (32, 32, 32), 4)):
            yield Call(
                f"cublasGemmEx {name} {sides} {'x'.join(map(str, shape))} batch {batch}",
                lambda a=(kind, result, compute, sides, shape, batch): product(*a),
                0,
            )
