"""cuFFT: complex and real transforms of one to three dimensions, in three precisions, batched and strided."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache

import numpy as np

from .device import Array, Call, Library, Pair, data, wide

FORWARD, INVERSE = -1, 1
KINDS = {"R2C": 0x2A, "C2R": 0x2C, "C2C": 0x29, "D2Z": 0x6A, "Z2D": 0x6C, "Z2Z": 0x69}
C_16F, R_16F = 6, 2  # cudaDataType
TOLERANCE = {"c8": 2e-6, "c16": 1e-14, "f4": 2e-6, "f8": 1e-14}


@cache
def library() -> Library:
    return Library("libcufft.so.12")


def plan(kind: str, shape: tuple[int, ...], batch: int = 1, layout: tuple[int, int] | None = None) -> ctypes.c_int:
    made = ctypes.c_int()
    sizes = (ctypes.c_int * len(shape))(*shape)
    stride, distance = layout or (1, 0)
    embed = sizes if layout else None
    library()(
        "cufftPlanMany",
        ctypes.byref(made),
        len(shape),
        sizes,
        embed,
        stride,
        distance,
        embed,
        stride,
        distance,
        KINDS[kind],
        batch,
    )
    return made


def complex_transform(dtype: str, shape: tuple[int, ...], batch: int, direction: int) -> Pair:
    letter = "C" if dtype == "c8" else "Z"
    x = np.ascontiguousarray(data(dtype, batch, *shape))
    out = Array(np.zeros_like(x))
    library()(f"cufftExec{letter}2{letter}", plan(f"{letter}2{letter}", shape, batch), Array(x), out, direction)
    axes = tuple(range(1, len(shape) + 1))
    if direction == FORWARD:
        return out.get(), np.fft.fftn(wide(x), axes=axes)
    return out.get(), np.fft.ifftn(wide(x), axes=axes) * np.prod(shape)


def strided(dtype: str, n: int, batch: int) -> Pair:
    """Transforms along the columns of a matrix stored by rows."""
    letter = "C" if dtype == "c8" else "Z"
    x = np.ascontiguousarray(data(dtype, n, batch))
    out = Array(np.zeros_like(x))
    made = plan(f"{letter}2{letter}", (n,), batch, (batch, 1))
    library()(f"cufftExec{letter}2{letter}", made, Array(x), out, FORWARD)
    return out.get(), np.fft.fft(wide(x), axis=0)


def to_complex(dtype: str, shape: tuple[int, ...], batch: int) -> Pair:
    kind = "R2C" if dtype == "f4" else "D2Z"
    x = np.ascontiguousarray(data(dtype, batch, *shape))
    half = (batch, *shape[:-1], shape[-1] // 2 + 1)
    out = Array(np.zeros(half, "c8" if dtype == "f4" else "c16"))
    library()(f"cufftExec{kind}", plan(kind, shape, batch), Array(x), out)
    return out.get(), np.fft.rfftn(wide(x), axes=tuple(range(1, len(shape) + 1)))


def to_real(dtype: str, shape: tuple[int, ...], batch: int) -> Pair:
    kind = "C2R" if dtype == "f4" else "Z2D"
    axes = tuple(range(1, len(shape) + 1))
    real = np.ascontiguousarray(data(dtype, batch, *shape))
    spectrum = np.fft.rfftn(wide(real), axes=axes).astype("c8" if dtype == "f4" else "c16")
    out = Array(np.zeros_like(real))
    library()(f"cufftExec{kind}", plan(kind, shape, batch), Array(spectrum), out)
    return out.get(), wide(real) * np.prod(shape)


def half_complex(n: int) -> Pair:
    x = data("c8", n)
    stored = np.stack([x.real, x.imag], axis=1).astype("f2")
    out, made, nbytes = Array(np.ascontiguousarray(np.zeros((n, 2), "f2"))), ctypes.c_int(), ctypes.c_size_t()
    library()("cufftCreate", ctypes.byref(made))
    sizes = (ctypes.c_longlong * 1)(n)
    one = ctypes.c_longlong(1)
    library()(
        "cufftXtMakePlanMany",
        made,
        1,
        sizes,
        None,
        one,
        one,
        C_16F,
        None,
        one,
        one,
        C_16F,
        ctypes.c_longlong(1),
        ctypes.byref(nbytes),
        C_16F,
    )
    library()("cufftXtExec", made, Array(np.ascontiguousarray(stored)), out, FORWARD)
    got = out.get().astype("f8")
    return got[:, 0] + 1j * got[:, 1], np.fft.fft(stored[:, 0].astype("f8") + 1j * stored[:, 1].astype("f8"))


def calls() -> Iterator[Call]:
    for dtype in ("c8", "c16"):
        for shape, batch in (
            ((8,), 1),
            ((64,), 3),
            ((100,), 2),
            ((97,), 2),
            ((1024,), 1),
            ((16, 24), 2),
            ((8, 6, 10), 1),
        ):
            for name, direction in (("forward", FORWARD), ("inverse", INVERSE)):
                yield Call(
                    f"cufftExec {dtype} {'x'.join(map(str, shape))} batch {batch} {name}",
                    lambda a=(dtype, shape, batch, direction): complex_transform(*a),
                    TOLERANCE[dtype],
                )
        yield Call(f"cufftExec {dtype} 32 of 5 columns", lambda a=dtype: strided(a, 32, 5), TOLERANCE[dtype])
    for dtype in ("f4", "f8"):
        for shape, batch in (((64,), 3), ((100,), 1), ((16, 24), 1)):
            text = f"{dtype} {'x'.join(map(str, shape))} batch {batch}"
            yield Call(f"cufftExec to complex {text}", lambda a=(dtype, shape, batch): to_complex(*a), TOLERANCE[dtype])
            yield Call(f"cufftExec to real {text}", lambda a=(dtype, shape, batch): to_real(*a), TOLERANCE[dtype])
    for n in (64, 256):
        yield Call(f"cufftXtExec f16 {n}", lambda n=n: half_complex(n), 3e-3)
