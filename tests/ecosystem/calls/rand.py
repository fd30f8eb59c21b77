"""cuRAND: each generator and distribution; the expected results come from the library's own generators on the host."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache

import numpy as np

from .device import Array, Call, Library, Pair, Size

PSEUDO = {"XORWOW": 101, "MRG32K3A": 121, "MTGP32": 141, "MT19937": 142, "PHILOX4_32_10": 161}
QUASI = {"SOBOL32": 201, "SCRAMBLED_SOBOL32": 202, "SOBOL64": 203, "SCRAMBLED_SOBOL64": 204}
LEGACY = 103  # CURAND_ORDERING_PSEUDO_LEGACY: the sequence of the host's generator
SEED = ctypes.c_ulonglong(20260128)
WITHOUT_HOST = {"MTGP32", "MT19937"}  # mean and deviation are compared, not the host's numbers
COUNT = 4096


@cache
def library() -> Library:
    return Library("libcurand.so.10")


def distributions(dtype: str) -> dict[str, tuple[str, tuple[object, ...], tuple[float, float]]]:
    """For each distribution: the function, its last arguments, and its mean and standard deviation."""
    number, end = (ctypes.c_float, "") if dtype == "f4" else (ctypes.c_double, "Double")
    spread = float(np.sqrt((np.exp(0.25) - 1) * np.exp(0.25)))
    return {
        "uniform": (f"curandGenerateUniform{end}", (), (0.5, 12**-0.5)),
        "normal": (f"curandGenerateNormal{end}", (number(1), number(2)), (1, 2)),
        "log normal": (f"curandGenerateLogNormal{end}", (number(0), number(0.5)), (float(np.exp(0.125)), spread)),
    }


def generate(kind: int, function: str, rest: tuple[object, ...], dtype: str, host: bool) -> np.ndarray:
    lib = library()
    made = lib.handle("curandCreateGeneratorHost" if host else "curandCreateGenerator", kind)
    if kind in PSEUDO.values():
        lib("curandSetPseudoRandomGeneratorSeed", made, SEED)
        if kind in (PSEUDO["XORWOW"], PSEUDO["MRG32K3A"], PSEUDO["PHILOX4_32_10"]):
            lib("curandSetGeneratorOrdering", made, LEGACY)
    on_host = np.zeros(COUNT, dtype)
    out = on_host if host else Array(on_host)
    lib(function, made, out, Size(COUNT), *rest)
    lib("curandDestroyGenerator", made)
    return out if isinstance(out, np.ndarray) else out.get()


def same_as_host(*arguments: object) -> Pair:
    return generate(*arguments, host=False), generate(*arguments, host=True)


def moments(kind: int, function: str, rest: tuple[object, ...], dtype: str, expected: tuple[float, float]) -> Pair:
    found = generate(kind, function, rest, dtype, host=False).astype("f8")
    return np.array([found.mean(), found.std()]), np.array(expected)


def calls() -> Iterator[Call]:
    for name, kind in {**PSEUDO, **QUASI}.items():
        if "64" not in name:
            integers = ("curandGenerate", (), "u4")
            if name in WITHOUT_HOST:
                spread = (2**31, 2**32 * 12**-0.5)
                yield Call(f"curandGenerate {name} u32", lambda a=(kind, *integers, spread): moments(*a), 0.05)
            else:
                yield Call(f"curandGenerate {name} u32", lambda a=(kind, *integers): same_as_host(*a), 0)
        if name == "MT19937":  # its state is set up by 8,192 threads of 624 steps: minutes on a simulator
            continue
        for dtype in ("f4", "f8"):
            for label, (function, rest, expected) in distributions(dtype).items():
                if name in WITHOUT_HOST:
                    run = lambda a=(kind, function, rest, dtype, expected): moments(*a)  # noqa: E731
                    yield Call(f"{function} {name}", run, 0.06)
                else:
                    close = 0 if label == "uniform" else (1e-5 if dtype == "f4" else 1e-13)
                    yield Call(f"{function} {name}", lambda a=(kind, function, rest, dtype): same_as_host(*a), close)
    poisson = ("curandGeneratePoisson", (ctypes.c_double(4),), "u4")
    for name in ("XORWOW", "PHILOX4_32_10"):
        yield Call(f"curandGeneratePoisson {name}", lambda a=(PSEUDO[name], *poisson, (4, 2)): moments(*a), 0.06)
