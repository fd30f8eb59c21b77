"""8-bit floats: every code decoded, and encoding against a search for the nearest code."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.vgpusim.codegen.instruction import apply

MANTISSA = {"e4m3x2": 3, "e5m2x2": 2}
BIAS = {"e4m3x2": 7, "e5m2x2": 15}
LARGEST = {"e4m3x2": 0x7E, "e5m2x2": 0x7B}


def decode(code: int, name: str) -> float:
    mantissa, sign = MANTISSA[name], -1.0 if code & 0x80 else 1.0
    exponent, fraction = (code & 0x7F) >> mantissa, code & ((1 << mantissa) - 1)
    if code & 0x7F > LARGEST[name]:
        return sign * np.inf if name == "e5m2x2" and fraction == 0 else np.nan
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - BIAS[name] - mantissa)
    return float(sign * (1 + fraction / (1 << mantissa)) * 2.0 ** (exponent - BIAS[name]))


def encode(x: float, name: str, relu: bool = False) -> int:
    """The nearest code, ties to even codes, clamped to the largest."""
    if np.isnan(x):
        return 0x7F
    negative = bool(np.signbit(x))
    if negative and relu:
        return 0
    best = min(range(LARGEST[name] + 1), key=lambda c: (abs(decode(c, name) - min(abs(x), 1e6)), c & 1))
    return best | (0x80 if negative else 0)


@pytest.mark.parametrize("name", MANTISSA)
def test_decoding(name: str) -> None:
    codes = np.arange(256, dtype=np.uint16)
    (got,) = apply(f"cvt.rn.f16x2.{name} %d0, %a0;", [codes | (codes[::-1] << 8)], "u4")
    for code in range(256):
        for half, c in ((int(got[code]) & 0xFFFF, code), (int(got[code]) >> 16, 255 - code)):
            value = np.array([half], np.uint16).view(np.float16)[0]
            expected = decode(c, name)
            assert (np.isnan(value) and np.isnan(expected)) or value.tobytes() == np.float16(expected).tobytes(), c


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("name", MANTISSA)
def test_encoding(name: str, relu: str) -> None:
    rng = np.random.default_rng(4)
    numbers = [decode(c, name) for c in range(LARGEST[name] + 1)]
    middles = [(a + b) / 2 for a, b in itertools.pairwise(numbers)]  # ties
    random = np.exp2(rng.uniform(-20, 17, 100)).tolist()
    x = np.array([*numbers, *middles, *random, 0.0, 1e-30, 1e30, 500.0, np.inf, np.nan], np.float32)
    x = np.concatenate([x, -x])
    y = rng.permutation(x)
    (got,) = apply(f"cvt.rn.satfinite{relu}.{name}.f32 %d0, %a0, %a1;", [x, y], "u2")
    assert got.tolist() == [encode(a, name, bool(relu)) << 8 | encode(b, name, bool(relu))
                            for a, b in zip(x, y, strict=True)]  # fmt: skip
    with np.errstate(over="ignore"):
        halves = x.astype(np.float16)
    pairs = halves.view(np.uint16).astype(np.uint32) | 0x3C000000  # the upper half is 1.0
    (got,) = apply(f"cvt.rn.satfinite{relu}.{name}.f16x2 %d0, %a0;", [pairs], "u2")
    assert got.tolist() == [encode(1.0, name) << 8 | encode(float(h), name, bool(relu)) for h in halves]
