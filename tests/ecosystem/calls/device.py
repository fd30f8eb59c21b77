"""The driver, arrays on the device, and libraries from PyPI's wheels, with numpy and ctypes alone."""

from __future__ import annotations

import ctypes
import os
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Pair = tuple[Any, Any]

REAL = {"S": "f4", "D": "f8"}
TYPES = {**REAL, "C": "c8", "Z": "c16"}
TOLERANCE = {"f4": 2e-5, "f8": 1e-12, "c8": 2e-5, "c16": 1e-12}


class Refused(Exception):
    """A library's function did not return success; the message has the function's name and its result."""


class Absent(Exception):
    """A library that is not installed."""


@dataclass(frozen=True)
class Call:
    """One call of a library.

    Args:
        name: unique, and begins with the library's function.
        run: returns what the device computed and what numpy computed.
        tolerance: largest difference, relative to max(1, largest expected magnitude); 0 demands equality.
    """

    name: str
    run: Callable[[], Pair]
    tolerance: float


class Size(int):
    """A size_t argument."""


class Long(int):
    """A long long argument."""


def find(soname: str) -> str:
    """Path of a library in one of NVIDIA's wheels, below the first entry of sys.path that has it.

    Raises:
        Absent: no entry has it.
    """
    for entry in sys.path:
        for pattern in (f"nvidia/*/lib/{soname}", f"nvidia/*/lib64/{soname}"):
            found = sorted(Path(entry or ".").glob(pattern))
            if found:
                return str(found[0])
    raise Absent(soname)


def opened(soname: str) -> ctypes.CDLL:
    """The loaded library of that name, if there is one (as cuda-pathfinder does), else the wheel's file.

    Raises:
        Absent: no wheel has it.
    """
    file = find(soname)
    try:
        return ctypes.CDLL(soname, ctypes.RTLD_GLOBAL | os.RTLD_NOLOAD)
    except OSError:
        return ctypes.CDLL(file, ctypes.RTLD_GLOBAL)


class Library:
    """A shared library whose functions return 0 for success."""

    def __init__(self, *sonames: str) -> None:
        for soname in sonames[:-1]:  # dependencies of the last one, which it would look for elsewhere
            opened(soname)
        self.cdll = opened(sonames[-1])

    def __call__(self, function: str, *arguments: object) -> None:
        kept = [_argument(argument) for argument in arguments]
        result = getattr(self.cdll, function)(*(passed for passed, _ in kept))
        if result != 0:
            raise Refused(f"{function}: {result}")

    def handle(self, function: str, *arguments: object) -> ctypes.c_void_p:
        """Call a function and return the handle that it writes through its first parameter."""
        made = ctypes.c_void_p()
        self(function, ctypes.byref(made), *arguments)
        return made

    def size(self, function: str, *arguments: object, kind: type = ctypes.c_size_t) -> int:
        """Call a function and return the number that it writes through its last parameter."""
        answer = kind()
        self(function, *arguments, ctypes.byref(answer))
        return int(answer.value)


def _argument(argument: Any) -> tuple[object, object]:
    """The value to pass, and the object that must live until the function returns."""
    if isinstance(argument, Size):
        return ctypes.c_size_t(argument), None
    if isinstance(argument, Long):
        return ctypes.c_longlong(argument), None
    if isinstance(argument, Array):
        return ctypes.c_void_p(argument.address), argument
    if isinstance(argument, np.ndarray | np.generic):  # by reference, on the host
        host = np.asarray(argument)
        return ctypes.c_void_p(host.ctypes.data), host
    if isinstance(argument, str):
        return argument.encode(), None
    return argument, None


class Driver:
    """libcuda with device 0's primary context."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self("cuCtxSetCurrent", context)

    def __call__(self, function: str, *arguments: object) -> None:
        result = getattr(self.cuda, function)(*arguments)
        if result != 0:
            raise Refused(f"{function}: {result}")

    def name(self) -> str:
        text = ctypes.create_string_buffer(100)
        self("cuDeviceGetName", text, 100, 0)
        return text.value.decode()

    def works(self) -> bool:
        """False once an error has ended the context."""
        return self.cuda.cuCtxSynchronize() == 0


DRIVER: Driver


def start() -> Driver:
    global DRIVER
    DRIVER = Driver()
    return DRIVER


class Array:
    """A copy of a host array on the device, in the same memory order; the memory is freed with this object."""

    def __init__(self, host: Any) -> None:
        host = np.asarray(host)
        self.dtype, self.shape, self.nbytes = host.dtype, host.shape, host.nbytes
        self.order: Any = "F" if host.flags.f_contiguous else "C"
        data = host if host.flags.c_contiguous or host.flags.f_contiguous else np.ascontiguousarray(host)
        address = ctypes.c_uint64()
        DRIVER("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(256, self.nbytes)))
        self.address = address.value
        DRIVER("cuMemcpyHtoD_v2", address, ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(self.nbytes))

    def get(self) -> Any:
        host = np.empty(self.shape, self.dtype, self.order)
        DRIVER("cuCtxSynchronize")
        DRIVER(
            "cuMemcpyDtoH_v2",
            ctypes.c_void_p(host.ctypes.data),
            ctypes.c_uint64(self.address),
            ctypes.c_size_t(host.nbytes),
        )
        return host

    def __del__(self) -> None:
        DRIVER.cuda.cuMemFree_v2(ctypes.c_uint64(self.address))


def empty(shape: Any, dtype: Any) -> Array:
    """An array of values that no result has, so that elements that a call does not write are noticed."""
    kind = np.dtype(dtype)
    return Array(np.full(shape, 77 if kind.kind in "iu" else np.nan, kind, order="F"))


def workspace(nbytes: int) -> Array:
    return Array(np.zeros(max(int(nbytes), 16), "u1"))


def data(dtype: str, *shape: int, seed: str = "") -> Any:
    """Random numbers between -1 and 1, in column-major order; equal arguments give equal numbers."""
    rng = np.random.default_rng(zlib.crc32(f"{dtype} {shape} {seed}".encode()))
    values = rng.uniform(-1, 1, shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.uniform(-1, 1, shape)
    return np.asfortranarray(values.astype(dtype))


def dominant(dtype: str, n: int, seed: str = "") -> Any:
    """A diagonally dominant matrix, which every solver solves accurately."""
    return np.asfortranarray(data(dtype, n, n, seed=seed) + n * np.eye(n, dtype=dtype))


def wide(array: Any) -> Any:
    """The array in the widest type, so that numpy's own rounding errors do not matter."""
    return array.astype("c16" if array.dtype.kind == "c" else "f8")
