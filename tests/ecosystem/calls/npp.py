"""NPP: signals and images, with a stream's description passed by value."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

from . import device
from .device import Array, Call, Library, Pair, Size, data, wide, workspace

ROWS, COLUMNS = 20, 33


class StreamContext(ctypes.Structure):
    """NppStreamContext"""

    _fields_ = [
        ("stream", ctypes.c_void_p),
        ("device", ctypes.c_int),
        ("multiprocessors", ctypes.c_int),
        ("threads_of_multiprocessor", ctypes.c_int),
        ("threads_of_block", ctypes.c_int),
        ("shared_nbytes", ctypes.c_size_t),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("reserved", ctypes.c_int),
    ]


class Extent(ctypes.Structure):
    """NppiSize and NppiPoint"""

    _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_int)]


@cache
def library(name: str) -> Library:
    return Library("libnppc.so.13", f"libnpp{name}.so.13")


@cache
def stream() -> StreamContext:
    numbers = []
    for attribute in (16, 39, 1, 8, 75, 76):  # CU_DEVICE_ATTRIBUTE_*, in the order of the fields
        value = ctypes.c_int()
        device.DRIVER("cuDeviceGetAttribute", ctypes.byref(value), attribute, 0)
        numbers.append(value.value)
    return StreamContext(None, 0, *numbers, 0, 0)


def signal(
    function: str, given: list[np.ndarray], more: tuple[object, ...], expected: Callable[..., np.ndarray]
) -> Pair:
    out = Array(np.zeros_like(given[0]))
    library("s")(f"{function}_Ctx", *map(Array, given), *more, out, Size(given[0].size), stream())
    return out.get(), expected(*map(wide, given))


def reduced(function: str, dtype: str, expected: Callable[[np.ndarray], float]) -> Pair:
    x, nbytes = data(dtype, 1000), ctypes.c_size_t()
    name, suffix = function.rsplit("_", 1)
    library("s")(f"{name}GetBufferSize_{suffix}_Ctx", Size(1000), ctypes.byref(nbytes), stream())
    out = Array(np.zeros(1, dtype))
    library("s")(f"{function}_Ctx", Array(x), Size(1000), out, workspace(nbytes.value), stream())
    return out.get()[0], expected(wide(x))


def image(seed: int, channels: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shape = (ROWS, COLUMNS) if channels == 1 else (ROWS, COLUMNS, channels)
    return rng.integers(0, 256, shape, dtype="u1")


def turned(module: str, function: str, given: list[np.ndarray], out: np.ndarray, *more: object) -> np.ndarray:
    """Call an image function with each source and its step, the destination and its step, the size, and `more`."""
    arguments: list[object] = []
    for picture in given:
        arguments += [Array(picture), picture.strides[0]]
    result = Array(out)
    library(module)(f"{function}_Ctx", *arguments, result, out.strides[0], Extent(COLUMNS, ROWS), *more, stream())
    return result.get()


def add_images() -> Pair:
    a, b = image(1), image(2)
    found = turned("ial", "nppiAdd_8u_C1RSfs", [a, b], np.zeros_like(a), 0)
    return found, np.minimum(a.astype("i4") + b, 255)


def mirror() -> Pair:
    return turned("ig", "nppiMirror_8u_C1R", [image(1)], np.zeros_like(image(1)), 1), image(1)[:, ::-1]


def transpose() -> Pair:
    return turned("idei", "nppiTranspose_8u_C1R", [image(1)], np.zeros((COLUMNS, ROWS), "u1")), image(1).T


def gray() -> Pair:
    a = image(3, 3)
    found = turned("icc", "nppiRGBToGray_8u_C3C1R", [a], np.zeros((ROWS, COLUMNS), "u1"))
    return found, np.floor(a @ np.array([0.299, 0.587, 0.114]))


def box() -> Pair:
    """The region of interest keeps the mask inside the image."""
    a, out = image(4), np.zeros((ROWS, COLUMNS), "u1")
    given, result = Array(a), Array(out)
    inside = ctypes.c_void_p(given.address + COLUMNS + 1)
    library("if")(
        "nppiFilterBox_8u_C1R_Ctx",
        inside,
        COLUMNS,
        ctypes.c_void_p(result.address + COLUMNS + 1),
        COLUMNS,
        Extent(COLUMNS - 2, ROWS - 2),
        Extent(3, 3),
        Extent(1, 1),
        stream(),
    )
    means = np.lib.stride_tricks.sliding_window_view(a, (3, 3)).mean((2, 3))
    return result.get()[1:-1, 1:-1], means


def calls() -> Iterator[Call]:
    x, y = data("f4", 1000, seed="x"), data("f4", 1000, seed="y")
    positive = np.abs(x) + np.float32(0.1)
    c = data("c8", 500)
    for name, given, more, expected in (
        ("nppsAdd_32f", [x, y], (), np.add),
        ("nppsMul_32f", [x, y], (), np.multiply),
        ("nppsSub_32f", [x, y], (), lambda a, b: b - a),
        ("nppsDiv_32f", [positive, y], (), lambda a, b: b / a),
        ("nppsSqrt_32f", [positive], (), np.sqrt),
        ("nppsExp_32f", [x], (), np.exp),
        ("nppsLn_32f", [positive], (), np.log),
        ("nppsAbs_32f", [x], (), np.abs),
        ("nppsMul_32fc", [c, c], (), np.multiply),
        ("nppsAdd_64f", [x.astype("f8"), y.astype("f8")], (), np.add),
    ):
        yield Call(name, lambda a=(name, given, more, expected): signal(*a), 1e-12 if name.endswith("64f") else 1e-5)
    for name, dtype, function in (
        ("nppsSum_32f", "f4", np.sum),
        ("nppsMax_32f", "f4", np.max),
        ("nppsMin_32f", "f4", np.min),
        ("nppsMean_32f", "f4", np.mean),
        ("nppsSum_64f", "f8", np.sum),
    ):
        yield Call(name, lambda a=(name, dtype, function): reduced(*a), 1e-4 if dtype == "f4" else 1e-12)
    for name, run, tolerance in (
        ("nppiAdd_8u_C1RSfs", add_images, 0),
        ("nppiMirror_8u_C1R", mirror, 0),
        ("nppiTranspose_8u_C1R", transpose, 0),
        ("nppiRGBToGray_8u_C3C1R", gray, 0.005),
        ("nppiFilterBox_8u_C1R", box, 0.005),
    ):
        yield Call(name, run, tolerance)
