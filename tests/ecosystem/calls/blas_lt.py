"""cuBLASLt: matrix products in every type, with the epilogues that neural networks use."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from functools import cache

import numpy as np

from .blas import COMPUTE_F32, COMPUTE_F64, COMPUTE_I32, COMPUTE_TF32
from .device import Array, Call, Library, Pair, Refused, Size, workspace
from .narrow import BF16, E4M3, E5M2, F16, F32, F64, I8, I32, Kind

TRANSA, EPILOGUE, BIAS_POINTER = 3, 7, 8  # CUBLASLT_MATMUL_DESC_*
BATCH_COUNT, BATCH_OFFSET = 5, 6  # CUBLASLT_MATRIX_LAYOUT_*
MAX_WORKSPACE = 1  # CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
WORKSPACE_NBYTES = 4 << 20
EPILOGUES = {"": 1, "relu": 2, "bias": 4, "relu bias": 6, "gelu": 32, "gelu bias": 36}


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t"""

    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_nbytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


@cache
def library() -> Library:
    return Library("libcublasLt.so.13")


@cache
def handle() -> object:
    return library().handle("cublasLtCreate")


def _set(function: str, where: object, attribute: int, value: np.generic) -> None:
    library()(function, where, attribute, value, Size(value.nbytes))


def activated(values: np.ndarray, epilogue: str, bias: np.ndarray) -> np.ndarray:
    values = values + (bias[:, None] if "bias" in epilogue else 0)
    if "relu" in epilogue:
        return np.maximum(values, 0)
    if "gelu" in epilogue:
        return values * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (values + 0.044715 * values**3)))
    return values


def matmul(
    kinds: tuple[Kind, Kind, Kind], compute: int, scale: Kind, shape: tuple[int, int, int], epilogue: str, batch: int
) -> Pair:
    """D = epilogue(A^T B), the form that every type supports: A is stored by rows."""
    lt, (m, n, k) = library(), shape
    rng = np.random.default_rng(m + n + k)
    a, b = rng.integers(-2, 3, (batch, m, k)), rng.integers(-2, 3, (batch, n, k))
    bias = rng.integers(-2, 3, m)
    bias_kind = kinds[2] if kinds[2].code in (F16.code, BF16.code) else F32
    stored = [Array(kinds[0].encode(a)), Array(kinds[1].encode(b)), Array(kinds[2].encode(np.full((batch, n, m), 99)))]
    stored_bias = Array(bias_kind.encode(bias))
    description = lt.handle("cublasLtMatmulDescCreate", compute, scale.code)
    _set("cublasLtMatmulDescSetAttribute", description, TRANSA, np.int32(1))
    _set("cublasLtMatmulDescSetAttribute", description, EPILOGUE, np.int32(EPILOGUES[epilogue]))
    if "bias" in epilogue:
        _set("cublasLtMatmulDescSetAttribute", description, BIAS_POINTER, np.uint64(stored_bias.address))
    layouts = []
    for kind, rows, columns in ((kinds[0], k, m), (kinds[1], k, n), (kinds[2], m, n)):
        made = lt.handle(
            "cublasLtMatrixLayoutCreate",
            kind.code,
            ctypes.c_uint64(rows),
            ctypes.c_uint64(columns),
            ctypes.c_int64(rows),
        )
        if batch > 1:
            _set("cublasLtMatrixLayoutSetAttribute", made, BATCH_COUNT, np.int32(batch))
            _set("cublasLtMatrixLayoutSetAttribute", made, BATCH_OFFSET, np.int64(rows * columns))
        layouts.append(made)
    preference = lt.handle("cublasLtMatmulPreferenceCreate")
    _set("cublasLtMatmulPreferenceSetAttribute", preference, MAX_WORKSPACE, np.uint64(WORKSPACE_NBYTES))
    chosen, found = Heuristic(), ctypes.c_int()
    lt(
        "cublasLtMatmulAlgoGetHeuristic",
        handle(),
        description,
        layouts[0],
        layouts[1],
        layouts[2],
        layouts[2],
        preference,
        1,
        ctypes.byref(chosen),
        ctypes.byref(found),
    )
    if found.value == 0:
        raise Refused("cublasLtMatmulAlgoGetHeuristic: no algorithm")
    kind = {F64.code: "f8", I32.code: "i4"}.get(scale.code, "f4")
    one, zero, space = np.ones((), kind), np.zeros((), kind), workspace(WORKSPACE_NBYTES)
    lt(
        "cublasLtMatmul",
        handle(),
        description,
        one,
        stored[0],
        layouts[0],
        stored[1],
        layouts[1],
        zero,
        stored[2],
        layouts[2],
        stored[2],
        layouts[2],
        ctypes.byref(chosen.algorithm),
        space,
        Size(WORKSPACE_NBYTES),
        None,
    )
    expected = (a @ b.swapaxes(1, 2)).astype("f8")
    expected = np.stack([activated(part, epilogue, bias) for part in expected])
    return kinds[2].decode(stored[2].get()).swapaxes(1, 2), expected


def calls() -> Iterator[Call]:
    shape = (64, 64, 64)
    plain = {
        "f32": ((F32, F32, F32), COMPUTE_F32, F32),
        "tf32": ((F32, F32, F32), COMPUTE_TF32, F32),
        "f64": ((F64, F64, F64), COMPUTE_F64, F64),
        "f16": ((F16, F16, F16), COMPUTE_F32, F32),
        "f16 to f32": ((F16, F16, F32), COMPUTE_F32, F32),
        "bf16": ((BF16, BF16, BF16), COMPUTE_F32, F32),
        "s8 to s32": ((I8, I8, I32), COMPUTE_I32, I32),
        "e4m3 to f32": ((E4M3, E4M3, F32), COMPUTE_F32, F32),
        "e4m3 to bf16": ((E4M3, E4M3, BF16), COMPUTE_F32, F32),
        "e5m2 e4m3 to f32": ((E5M2, E4M3, F32), COMPUTE_F32, F32),
    }
    for name, (kinds, compute, scale) in plain.items():
        for batch in (1, 3):
            arguments = (kinds, compute, scale, shape, "", batch)
            yield Call(f"cublasLtMatmul {name} batch {batch}", lambda a=arguments: matmul(*a), 0)
    for name in ("f32", "f16", "bf16"):
        kinds, compute, scale = plain[name]
        for epilogue in list(EPILOGUES)[1:]:
            tolerance = {"f32": 1e-3, "f16": 2e-3, "bf16": 1e-2}[name] if "gelu" in epilogue else 0
            arguments = (kinds, compute, scale, shape, epilogue, 1)
            yield Call(f"cublasLtMatmul {name} {epilogue}", lambda a=arguments: matmul(*a), tolerance)
