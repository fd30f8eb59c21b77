"""cuSOLVER: factorisations, solutions, eigenvalues and singular values of dense matrices, in four types."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache

import numpy as np

from .device import TOLERANCE, TYPES, Array, Call, Library, Pair, data, dominant, empty, wide, workspace

N, LOWER, UPPER = 24, 0, 1


@cache
def library() -> Library:
    return Library(
        "libnvJitLink.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcusparse.so.12", "libcusolver.so.12"
    )


@cache
def handle() -> object:
    return library().handle("cusolverDnCreate")


def size(function: str, *arguments: object) -> int:
    return library().size(function, handle(), *arguments, kind=ctypes.c_int)


def call(function: str, *arguments: object) -> None:
    """Call a function whose last argument is `info`, and assert that `info` reports success."""
    info = Array(np.full(1, 99, "i4"))
    library()(function, handle(), *arguments, info)
    assert info.get()[0] == 0, f"{function}: info {info.get()[0]}"


def routines(letter: str, dtype: str) -> Iterator[tuple[str, object]]:
    prefix, real = f"cusolverDn{letter}", np.dtype(dtype).type(0).real.dtype
    complex_ = letter in "CZ"
    a = dominant(dtype, N)
    b = data(dtype, N, 3, seed="b")
    hermitian = np.asfortranarray((a + a.T.conj()) / 2)
    tall = data(dtype, N, 10, seed="tall")

    def potrf() -> Pair:
        out, right = Array(hermitian), Array(b)
        count = size(f"{prefix}potrf_bufferSize", LOWER, N, out, N)
        call(f"{prefix}potrf", LOWER, N, out, N, workspace(16 * count), count)
        call(f"{prefix}potrs", LOWER, N, 3, out, N, right, N)
        return right.get(), np.linalg.solve(wide(hermitian), wide(b))

    def getrf() -> Pair:
        out, right, pivots = Array(a), Array(b), Array(np.zeros(N, "i4"))
        count = size(f"{prefix}getrf_bufferSize", N, N, out, N)
        call(f"{prefix}getrf", N, N, out, N, workspace(16 * count), pivots)
        call(f"{prefix}getrs", 0, N, 3, out, N, pivots, right, N)
        return right.get(), np.linalg.solve(wide(a), wide(b))

    def geqrf() -> Pair:
        out, tau = Array(tall), Array(np.zeros(10, dtype))
        count = size(f"{prefix}geqrf_bufferSize", N, 10, out, N)
        call(f"{prefix}geqrf", N, 10, out, N, tau, workspace(16 * count), count)
        upper = np.triu(out.get()[:10])
        q = f"cusolverDn{letter}{'ungqr' if complex_ else 'orgqr'}"
        count = size(f"{q}_bufferSize", N, 10, 10, out, N, tau)
        call(q, N, 10, 10, out, N, tau, workspace(16 * count), count)
        return wide(out.get()) @ wide(upper), wide(tall)

    def syevd() -> Pair:
        name = f"{prefix}{'heevd' if complex_ else 'syevd'}"
        out, values = Array(hermitian), empty(N, real)
        count = size(f"{name}_bufferSize", 1, LOWER, N, out, N, values)
        call(name, 1, LOWER, N, out, N, values, workspace(16 * count), count)
        vectors = wide(out.get())
        again = vectors @ np.diag(values.get()) @ vectors.T.conj()
        return np.concatenate([values.get(), np.abs(again - wide(hermitian)).ravel()]), np.concatenate(
            [np.linalg.eigvalsh(wide(hermitian)), np.zeros(N * N)]
        )

    def gesvd() -> Pair:
        out, values = Array(tall), empty(10, real)
        u, vt = empty((N, N), dtype), empty((10, 10), dtype)
        count = size(f"{prefix}gesvd_bufferSize", N, 10)
        job = ctypes.c_byte(ord("A"))
        call(
            f"{prefix}gesvd",
            job,
            job,
            N,
            10,
            out,
            N,
            values,
            u,
            N,
            vt,
            10,
            workspace(16 * count),
            count,
            workspace(8 * N),
        )
        again = wide(u.get())[:, :10] * values.get() @ wide(vt.get())
        return np.concatenate([values.get(), np.abs(again - wide(tall)).ravel()]), np.concatenate(
            [np.linalg.svd(wide(tall), compute_uv=False), np.zeros(N * 10)]
        )

    def potrf_batched() -> Pair:
        parts = [Array(hermitian * np.dtype(dtype).type(1 + k)) for k in range(4)]
        pointers, info = Array(np.array([part.address for part in parts], "u8")), Array(np.full(4, 99, "i4"))
        library()(f"{prefix}potrfBatched", handle(), LOWER, N, pointers, N, info, 4)
        assert not info.get().any(), info.get()
        return np.stack([np.tril(part.get()) for part in parts]), np.stack(
            [np.linalg.cholesky(wide(hermitian) * (1 + k)) for k in range(4)]
        )

    for run in (potrf, getrf, geqrf, syevd, gesvd, potrf_batched):
        yield run.__name__, run
    if complex_:
        return

    def syevj() -> Pair:
        parameters = library().handle("cusolverDnCreateSyevjInfo")
        out, values = Array(hermitian), empty(N, real)
        count = ctypes.c_int()
        library()(f"{prefix}syevj_bufferSize", handle(), 1, LOWER, N, out, N, values, ctypes.byref(count), parameters)
        info = Array(np.full(1, 99, "i4"))
        space = workspace(16 * count.value)
        library()(f"{prefix}syevj", handle(), 1, LOWER, N, out, N, values, space, count, info, parameters)
        assert info.get()[0] == 0, info.get()
        return values.get(), np.linalg.eigvalsh(wide(hermitian))

    yield "syevj", syevj


def calls() -> Iterator[Call]:
    for letter, dtype in TYPES.items():
        for name, run in routines(letter, dtype):
            yield Call(f"cusolverDn{letter} {name} {N}", run, 20 * TOLERANCE[dtype])
