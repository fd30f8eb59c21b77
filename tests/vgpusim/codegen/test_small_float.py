"""Floats of 6 and 4 bits and powers of two: every code decoded, and encoding against a search. Also pairs of f32."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tests.vgpusim.codegen import interpreter
from tests.vgpusim.codegen.instruction import apply, floats

FORMATS = {"e2m3x2": (3, 1, 6, 8), "e3m2x2": (2, 3, 6, 8), "e2m1x2": (1, 1, 4, 4)}  # mantissa, bias, bits, place


def decode(code: int, name: str) -> float:
    mantissa, bias, nbits, _ = FORMATS[name]
    sign = -1.0 if code >> (nbits - 1) & 1 else 1.0
    exponent, fraction = (code & ((1 << (nbits - 1)) - 1)) >> mantissa, code & ((1 << mantissa) - 1)
    whole = fraction + ((1 << mantissa) if exponent else 0)
    return sign * whole * 2.0 ** (max(exponent, 1) - bias - mantissa)


def encode(x: float, name: str, relu: bool) -> int:
    """The nearest code, ties to even codes, clamped to the largest; a NaN becomes the largest number."""
    nbits = FORMATS[name][2]
    largest = (1 << (nbits - 1)) - 1
    if math.isnan(x):
        return largest
    if math.copysign(1, x) < 0 and relu:
        return 0
    best = min(range(largest + 1), key=lambda c: (abs(decode(c, name) - min(abs(x), 1e6)), c & 1))
    return best | (1 << (nbits - 1) if math.copysign(1, x) < 0 else 0)


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("name", FORMATS)
def test_decoding(name: str, relu: str) -> None:
    _, _, nbits, place = FORMATS[name]
    codes = np.arange(1 << nbits, dtype=np.uint16)
    read = "{ .reg .b8 %b; cvt.u8.u16 %b, %a0;" if place == 4 else "{ .reg .b16 %b; mov.b16 %b, %a0;"
    (got,) = apply(f"{read} cvt.rn{relu}.f16x2.{name} %d0, %b; }}", [codes | codes[::-1] << place], "u4")
    for code in codes.tolist():
        for half, c in ((int(got[code]) & 0xFFFF, code), (int(got[code]) >> 16, int(codes[-1]) - code)):
            value = decode(c, name)
            if relu and math.copysign(1, value) < 0:
                value = 0.0
            assert half == int(np.float16(value).view(np.uint16)), (code, c)


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("name", FORMATS)
def test_encoding(name: str, relu: str) -> None:
    _, _, nbits, place = FORMATS[name]
    numbers = [decode(c, name) for c in range(1 << (nbits - 1))]
    middles = [(a + b) / 2 for a, b in itertools.pairwise(numbers)]
    random = np.exp2(np.random.default_rng(4).uniform(-8, 7, 60)).tolist()
    x = np.array([*numbers, *middles, *random, 0.0, 1e-30, 1e30, np.inf, np.nan], np.float32)
    x = np.concatenate([x, -x])
    y = np.random.default_rng(5).permutation(x)
    write = "cvt.u16.u8 %d0, %b; }" if place == 4 else "mov.b16 %d0, %b; }"
    declare = f"{{ .reg .b{2 * place} %b;"
    (got,) = apply(f"{declare} cvt.rn.satfinite{relu}.{name}.f32 %b, %a0, %a1; {write}", [x, y], "u2")
    expected = [encode(a, name, bool(relu)) << place | encode(b, name, bool(relu)) for a, b in zip(x, y, strict=True)]
    assert got.tolist() == expected


def test_powers_of_two_decoded() -> None:
    codes = np.arange(256, dtype=np.uint16)
    (got,) = apply("cvt.rn.bf16x2.ue8m0x2 %d0, %a0;", [codes | 0x7F00], "u4")
    expected = [(2.0 ** (code - 127)) if code < 255 else math.nan for code in codes.tolist()]
    low = ((got & 0xFFFF) << 16).astype("u4").view("f4")
    assert low[:255].tolist() == expected[:255]
    assert int(got[255]) & 0xFFFF == 0x7FFF
    assert set((got >> 16).tolist()) == {0x3F80}


@pytest.mark.parametrize("finite", ["", ".satfinite"])
@pytest.mark.parametrize("mode", ["rz", "rp"])
def test_powers_of_two_encoded(mode: str, finite: str) -> None:
    edges = [0.0, 2.0**-149, 2.0**-127, 2.0**-127 + 2.0**-149, 2.0**-126, 1.0, 1.5, 2.0**127, 3.4e38, np.inf, np.nan]
    x = np.concatenate([np.array(edges, "f4"), floats("f4", span=120)])
    x = np.concatenate([x, -x])
    (got,) = apply(f"cvt.{mode}{finite}.ue8m0x2.f32 %d0, %a0, %a1;", [x, np.full_like(x, 4.0)], "u2")
    for value, code in zip(x.tolist(), got.tolist(), strict=True):
        assert code & 0xFF == 129
        size = abs(value)
        if math.isnan(size):
            wanted = 255
        elif math.isinf(size):
            wanted = 254 if finite else 255
        else:
            powers = [Fraction(2) ** (c - 127) for c in range(255)]
            below = max((c for c in range(255) if powers[c] <= Fraction(size)), default=0)
            exact = powers[below] == Fraction(size) or Fraction(size) < powers[0]
            wanted = below if mode == "rz" or exact else below + 1
            wanted = min(wanted, 254) if finite else wanted
        assert code >> 8 == wanted, (value, code >> 8, wanted)


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "fma"])
def test_pairs_of_f32(operation: str) -> None:
    """Each half equals the scalar operation. References: exact arithmetic for rn, the scalar form for rz, rm, rp."""
    a, b, c = (floats("f4", 2 * 60, seed=i, span=40) for i in range(3))
    pairs = [x.view("u8") for x in (a, b, c)][: 3 if operation == "fma" else 2]
    listed = ", ".join(f"%a{i}" for i in range(len(pairs)))
    for mode in ("rn", "rz", "rm", "rp"):
        (got,) = apply(f"{operation}.{mode}.f32x2 %d0, {listed};", pairs, "u8")
        (wanted,) = apply(f"{operation}.{mode}.f32 %d0, {listed};", [x.view("f4") for x in pairs], "u4")
        assert got.view("u4").tolist() == wanted.tolist()
        if mode == "rn":
            for i, bits in enumerate(wanted.tolist()):
                x, y, z = (float(v[i]) for v in (a, b, c))
                if all(map(math.isfinite, (x, y, z))):
                    p, q = Fraction(x), Fraction(y)
                    exact = {"add": p + q, "sub": p - q, "mul": p * q, "fma": p * q + Fraction(z)}[operation]
                    if exact:
                        assert bits == interpreter.round_to(exact, 32)
