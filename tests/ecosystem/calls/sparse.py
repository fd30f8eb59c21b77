"""cuSPARSE: the generic interface with CSR, CSC and COO matrices, and conversions."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache

import numpy as np

from .device import TOLERANCE, TYPES, Array, Call, Library, Pair, data, empty, wide, workspace

CODES = {"f4": 0, "f8": 1, "c8": 4, "c16": 5}
I32, ZERO_BASE, BY_COLUMNS, BY_ROWS = 2, 0, 1, 2
M, N = 40, 30


@cache
def library() -> Library:
    return Library("libnvJitLink.so.13", "libcusparse.so.12")


@cache
def handle() -> object:
    return library().handle("cusparseCreate")


def number(value: int) -> ctypes.c_int64:
    return ctypes.c_int64(value)


class Matrix:
    """A sparse matrix on the device, in a format of the generic interface."""

    def __init__(self, host: np.ndarray, layout: str) -> None:
        rows, columns = np.nonzero(host)
        if layout == "Csc":
            columns, rows = np.nonzero(host.T)
        code, shape, count = (
            CODES[host.dtype.str[1:]],
            (number(host.shape[0]), number(host.shape[1])),
            number(len(rows)),
        )
        self.values = Array(host[rows, columns])
        major, minor, extent = (columns, rows, host.shape[1]) if layout == "Csc" else (rows, columns, host.shape[0])
        starts = np.searchsorted(major, np.arange(extent + 1)).astype("i4")
        self.major, self.minor = Array(major.astype("i4") if layout == "Coo" else starts), Array(minor.astype("i4"))
        index = (I32, ZERO_BASE) if layout == "Coo" else (I32, I32, ZERO_BASE)
        self.description = library().handle(
            f"cusparseCreate{layout}", *shape, count, self.major, self.minor, self.values, *index, code
        )


def dense(array: Array, order: int = BY_COLUMNS) -> object:
    rows, columns = array.shape
    leading = rows if order == BY_COLUMNS else columns
    code = CODES[array.dtype.str[1:]]
    return library().handle("cusparseCreateDnMat", number(rows), number(columns), number(leading), array, code, order)


def vector(array: Array) -> object:
    return library().handle("cusparseCreateDnVec", number(array.shape[0]), array, CODES[array.dtype.str[1:]])


def few(dtype: str, m: int = M, n: int = N, seed: str = "") -> np.ndarray:
    values = data(dtype, m, n, seed=seed)
    return np.ascontiguousarray(np.where(np.abs(data("f4", m, n, seed="mask" + seed)) < 0.2, values, 0))


def buffered(function: str, *arguments: object) -> None:
    nbytes = library().size(f"{function}_bufferSize", handle(), *arguments)
    library()(function, handle(), *arguments, workspace(nbytes))


def spmv(dtype: str, layout: str, transposed: bool) -> Pair:
    a = few(dtype)
    x, y = data(dtype, M if transposed else N, seed="x"), data(dtype, N if transposed else M, seed="y")
    one, half, out, matrix = np.ones((), dtype), np.full((), 0.5, dtype), Array(y), Matrix(a, layout)
    given = Array(x)
    buffered(
        "cusparseSpMV", int(transposed), one, matrix.description, vector(given), half, vector(out), CODES[dtype], 0
    )
    return out.get(), (wide(a).T if transposed else wide(a)) @ wide(x) + 0.5 * wide(y)


def spmm(dtype: str, layout: str, order: int) -> Pair:
    a, b = few(dtype), data(dtype, N, 7, seed="b")
    host = b if order == BY_COLUMNS else np.ascontiguousarray(b)
    given, matrix = Array(host), Matrix(a, layout)
    out = Array(np.zeros((M, 7), dtype, "F" if order == BY_COLUMNS else "C"))
    one, zero = np.ones((), dtype), np.zeros((), dtype)
    buffered(
        "cusparseSpMM", 0, 0, one, matrix.description, dense(given, order), zero, dense(out, order), CODES[dtype], 0
    )
    return out.get(), wide(a) @ wide(b)


def spsv(dtype: str) -> Pair:
    a = np.tril(few(dtype, N, N)) + 3 * np.eye(N, dtype=dtype)
    x, out, matrix, lib = data(dtype, N), empty(N, dtype), Matrix(np.ascontiguousarray(a), "Csr"), library()
    given, made, one = Array(x), lib.handle("cusparseSpSV_createDescr"), np.ones((), dtype)
    arguments = (0, one, matrix.description, vector(given), vector(out), CODES[dtype], 0, made)
    space = workspace(lib.size("cusparseSpSV_bufferSize", handle(), *arguments))
    lib("cusparseSpSV_analysis", handle(), *arguments, space)
    lib("cusparseSpSV_solve", handle(), *arguments)
    return out.get(), np.linalg.solve(wide(a), wide(x))


def sddmm(dtype: str) -> Pair:
    a, b, mask = data(dtype, M, 8, seed="a"), data(dtype, 8, N, seed="b"), few(dtype)
    left, right, matrix = Array(a), Array(b), Matrix(mask, "Csr")
    one, zero = np.ones((), dtype), np.zeros((), dtype)
    buffered("cusparseSDDMM", 0, 0, one, dense(left), dense(right), zero, matrix.description, CODES[dtype], 0)
    rows, columns = np.nonzero(mask)
    return matrix.values.get(), (wide(a) @ wide(b))[rows, columns]


def to_dense(dtype: str, layout: str) -> Pair:
    a, out, lib = few(dtype), empty((M, N), dtype), library()
    matrix, made = Matrix(a, layout), dense(out)
    space = workspace(lib.size("cusparseSparseToDense_bufferSize", handle(), matrix.description, made, 0))
    lib("cusparseSparseToDense", handle(), matrix.description, made, 0, space)
    return out.get(), a


def gather(dtype: str) -> Pair:
    x = data(dtype, 100)
    where = np.arange(3, 90, 7, dtype="i4")
    full, indices, values = Array(x), Array(where), Array(np.zeros(len(where), dtype))
    description = library().handle(
        "cusparseCreateSpVec", number(100), number(len(where)), indices, values, I32, ZERO_BASE, CODES[dtype]
    )
    library()("cusparseGather", handle(), vector(full), description)
    return values.get(), x[where]


def calls() -> Iterator[Call]:
    for dtype in TYPES.values():
        close = TOLERANCE[dtype]
        for layout in ("Csr", "Csc", "Coo"):
            for transposed in (False, True):
                name = f"cusparseSpMV {dtype} {layout}{' transposed' * transposed}"
                yield Call(name, lambda a=(dtype, layout, transposed): spmv(*a), close)
        for layout, order in (("Csr", BY_COLUMNS), ("Csr", BY_ROWS), ("Coo", BY_COLUMNS)):
            name = f"cusparseSpMM {dtype} {layout} by {'rows' if order == BY_ROWS else 'columns'}"
            yield Call(name, lambda a=(dtype, layout, order): spmm(*a), close)
        if dtype in ("f4", "f8"):
            yield Call(f"cusparseSpSV {dtype}", lambda dtype=dtype: spsv(dtype), 10 * close)
        yield Call(f"cusparseSDDMM {dtype}", lambda dtype=dtype: sddmm(dtype), close)
        for layout in ("Csr", "Coo"):
            yield Call(f"cusparseSparseToDense {dtype} {layout}", lambda a=(dtype, layout): to_dense(*a), 0)
        yield Call(f"cusparseGather {dtype}", lambda dtype=dtype: gather(dtype), 0)
