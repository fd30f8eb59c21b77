"""Kernels with the forms that nvcc generates for the CUDA headers and maths library (kernels/features.cu)."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.vgpusim.codegen.harness import run

KERNELS = Path(__file__).parent / "kernels"
N = 1000


@pytest.fixture(params=["sm75", "sm90"])
def text(request: pytest.FixtureRequest) -> str:
    return (KERNELS / f"features_{request.param}.ptx").read_text()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def test_printf(text: str) -> None:
    events = run(text, "say", 1, 40, [3])
    assert [fmt for fmt, _ in events.printed] == [b"thread %d of %d: %f %s\n"] * 3
    assert [struct.unpack_from("<iid", a) for a in events.arguments] == [(0, 3, 0.0), (1, 3, 0.5), (2, 3, 1.0)]


def test_maths_f64(text: str, rng: np.random.Generator) -> None:
    x, out = rng.random(N) * 3 + 0.1, np.zeros(N)
    run(text, "math", 8, 128, [x, out, N])
    erf = np.array([math.erf(v) for v in x])
    expected = np.exp(x) + np.sin(x * 1e5) / np.sqrt(x) + np.log(x) + x**1.7 + erf + np.cbrt(x)
    np.testing.assert_allclose(out, expected, rtol=1e-13, atol=1e-13)


def test_maths_f32(text: str, rng: np.random.Generator) -> None:
    x, out = (rng.random(N) * 3 + 0.1).astype("f4"), np.zeros(N, "f4")
    run(text, "mathf", 8, 128, [x, out, N])
    d = x.astype("f8")
    sine = np.sin((x * np.float32(1e5)).astype("f8"))
    expected = (
        np.exp(d) + sine / np.sqrt(d) + np.log(d) + d**1.7 + np.tanh(d) + 1 / d + np.fmod(d, float(np.float32(0.3)))
    )
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=5e-6)


def test_half_precision(text: str, rng: np.random.Generator) -> None:
    h, out = rng.random(2 * N).astype("f2"), np.zeros(2 * N, "f2")
    b, q = (rng.random(N, dtype=np.float32).view("u4") >> 16).astype("u2"), np.zeros(N, "u2")
    run(text, "halfs", 8, 128, [h, out, b, q, N])
    np.testing.assert_allclose(out.astype("f8"), h.astype("f8") ** 2 + np.exp(h.astype("f8")), rtol=2e-3)
    wide = (b.astype("u4") << 16).view("f4").astype("f8")
    np.testing.assert_allclose((q.astype("u4") << 16).view("f4"), 2 * wide * wide, rtol=1e-2)


def test_block_scan(text: str, rng: np.random.Generator) -> None:
    x, out = rng.integers(0, 100, N, dtype=np.int32), np.zeros(N, np.int32)
    run(text, "scan", 4, 256, [x, out, N])
    for start in range(0, N, 256):
        assert np.array_equal(out[start : start + 256], np.cumsum(x[start : start + 256]))


def test_decoupled_lookback_scan(text: str, rng: np.random.Generator) -> None:
    x, out = rng.integers(0, 100, N, dtype=np.int32), np.zeros(N, np.int32)
    run(text, "lookback", 8, 128, [x, out, np.zeros(8, np.int64), np.zeros(1, np.int32), N])
    assert np.array_equal(out, np.cumsum(x))


def test_cooperative_groups_tiles(text: str, rng: np.random.Generator) -> None:
    x, out = rng.integers(0, 90, 64, dtype=np.int32), np.zeros(64, np.int32)
    run(text, "tiles", 1, 64, [x, out])
    assert np.array_equal(out[:8], x.reshape(8, 8).sum(1))


def test_assert(text: str) -> None:
    x = np.arange(64, dtype=np.int32)
    ((message, file, line, function),) = run(text, "checked", 1, 64, [x, 32]).asserted
    assert (message, file, function) == (b"x[i] != 13", b"features.cu", b"void checked(const int *, int)")
    assert line > 0
    assert not run(text, "checked", 1, 64, [x, 13]).asserted


def test_local_arrays(text: str, rng: np.random.Generator) -> None:
    x, out = rng.integers(0, 100, N, dtype=np.int32), np.zeros(N, np.int32)
    run(text, "local", 8, 128, [x, out, N])
    index = (np.arange(N)[:, None] + np.arange(16)) % N
    window = x[index].astype(np.int64)
    total = np.zeros(N, np.int64)
    for k in range(16):
        total = total * 3 + window[np.arange(N), (x + k) & 15]
    assert np.array_equal(out, total.astype(np.int32))


def test_switch(text: str, rng: np.random.Generator) -> None:
    x, out, i = rng.integers(0, 10, N, dtype=np.int32), np.zeros(N, np.int32), np.arange(N)
    run(text, "sw", 8, 128, [x, out, N])
    ones = np.array([int(k).bit_count() for k in i])
    assert np.array_equal(out, np.select([x == k for k in range(7)], [5, x * 7, i, i * i, -1, i << 3, ones], x % 7))


def test_integer_division(text: str, rng: np.random.Generator) -> None:
    a, b = rng.integers(-(2**62), 2**62, N), rng.integers(-(2**40), 2**40, N) | 1
    out, small = np.zeros(N, np.int64), np.zeros(N, np.uint32)
    run(text, "divs", 8, 128, [a, b, out, small, N])
    for x, y, got in zip(a.tolist(), b.tolist(), out.tolist(), strict=True):
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        assert got == quotient + (x - y * quotient)
    assert np.array_equal(small, a.astype(np.uint32) // 7 + b.astype(np.uint32) % 10)
