"""Floating-point instructions and conversions against numpy, exactly where PTX promises exactness."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from tests.vgpusim.codegen.instruction import Array, apply, floats, integers

DTYPE = {"f16": "f2", "f32": "f4", "f64": "f8"}


def same(a: Array, b: Array) -> None:
    nan = np.isnan(b)
    assert np.array_equal(np.isnan(a), nan)
    bad = (a != b) & ~nan | (np.signbit(a) != np.signbit(b)) & ~nan
    assert not bad.any(), (a[bad], b[bad])


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_arithmetic(name: str, kind: str) -> None:
    a, b = floats(DTYPE[kind], seed=1), floats(DTYPE[kind], seed=2)
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name]
    with np.errstate(all="ignore"):
        same(
            apply(f"{name}{'.rn' if kind != 'f16' else ''}.{kind} %d0, %a0, %a1;", [a, b], DTYPE[kind])[0],
            function(a, b),
        )


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_division_root_reciprocal(kind: str) -> None:
    a, b = floats(DTYPE[kind], seed=1), floats(DTYPE[kind], seed=2)
    with np.errstate(all="ignore"):
        same(apply(f"div.rn.{kind} %d0, %a0, %a1;", [a, b], DTYPE[kind])[0], a / b)
        same(apply(f"sqrt.rn.{kind} %d0, %a0;", [a], DTYPE[kind])[0], np.sqrt(a))
        same(apply(f"rcp.rn.{kind} %d0, %a0;", [a], DTYPE[kind])[0], DTYPE[kind] and (a.dtype.type(1) / a))


def test_fma_is_fused() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random(77, dtype=np.float32), rng.random(77, dtype=np.float32)
    c = -(a * b)
    (result,) = apply("fma.rn.f32 %d0, %a0, %a1, %a2;", [a, b, c], "f4")
    same(result, (a.astype("f8") * b + c).astype("f4"))
    assert result.any()


def test_half_fma_rounds_once() -> None:
    """Operands whose f32 sum lies next to a tie of f16, and random ones; the reference is exact."""
    a, b, c = (floats("f2", 400, seed=i, span=6) for i in range(3))
    a[:4], b[:4], c[:4] = [1 + 2**-10, 1 + 2**-10, 2**-7, 1.5], [1.5, 2**-11, 2**-7, 2**-12], [2048, 1, 1 + 2**-10, -1]
    (result,) = apply("fma.rn.f16 %d0, %a0, %a1, %a2;", [a, b, c], "f2")
    for x, y, z, got in zip(a, b, c, result, strict=True):
        if not all(map(np.isfinite, (x, y, z))):
            continue
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        assert np.isfinite(got)
        low, high = (np.nextafter(got, np.float16(-np.inf)), np.nextafter(got, np.float16(np.inf)))
        distance = abs(Fraction(float(got)) - exact)
        for other in (low, high):
            assert distance <= abs(Fraction(float(other)) - exact), (x, y, z, got)


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("nan", ["", ".NaN"])
def test_min_max(name: str, nan: str) -> None:
    a, b = floats("f4", seed=1), floats("f4", seed=2)
    a[:2], b[:2] = [0.0, -0.0], [-0.0, 0.0]
    (result,) = apply(f"{name}{nan}.f32 %d0, %a0, %a1;", [a, b], "f4")
    function = {"min": np.minimum, "max": np.maximum}[name] if nan else {"min": np.fmin, "max": np.fmax}[name]
    expected = function(a, b)
    expected[:2] = -0.0 if name == "min" else 0.0
    same(result, expected)


def test_sign_instructions() -> None:
    a, b = floats("f4", seed=1), floats("f4", seed=2)
    same(apply("neg.f32 %d0, %a0;", [a], "f4")[0], -a)
    same(apply("abs.f32 %d0, %a0;", [a], "f4")[0], np.abs(a))
    same(apply("copysign.f32 %d0, %a0, %a1;", [a, b], "f4")[0], np.copysign(b, a))


@pytest.mark.parametrize(
    ("name", "function", "tolerance"),
    [
        ("ex2", np.exp2, 2e-6),
        ("lg2", lambda x: np.log2(np.abs(x)), 2e-6),
        ("sin", np.sin, 2e-6),
        ("cos", np.cos, 2e-6),
        ("tanh", np.tanh, 1e-5),
        ("rcp", lambda x: 1 / x, 2e-6),
        ("rsqrt", lambda x: 1 / np.sqrt(np.abs(x)), 2e-6),
        ("sqrt", lambda x: np.sqrt(np.abs(x)), 2e-6),
    ],
)
def test_approximations(name: str, function: Callable[[Array], Array], tolerance: float) -> None:
    a = np.random.default_rng(3).uniform(-20, 20, 77).astype("f4")
    body = (
        f"abs.f32 %a0, %a0; {name}.approx.f32 %d0, %a0;"
        if name in ("lg2", "rsqrt", "sqrt")
        else f"{name}.approx.f32 %d0, %a0;"
    )
    (result,) = apply(body, [a], "f4")
    error = 5e-6 if name in ("sin", "cos") else 1e-6  # their argument is multiplied by 1 / (2 * pi), and truncated
    np.testing.assert_allclose(result, function(a.astype("f8")), rtol=tolerance, atol=error)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], "f4")
    with np.errstate(all="ignore"):
        (result,) = apply(f"{name}.approx.f32 %d0, %a0;", [special], "f4")
        plain = {"lg2": np.log2, "rsqrt": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt}.get(name, function)
        np.testing.assert_array_equal(result, plain(special).astype("f4"))


def test_exp2_over_its_whole_range() -> None:
    a = np.concatenate([np.linspace(-152, 129, 5000), np.arange(-150, 128)]).astype("f4")
    (result,) = apply("ex2.approx.f32 %d0, %a0;", [a], "f4")
    with np.errstate(all="ignore"):
        exact = np.exp2(a.astype("f8"))
        np.testing.assert_allclose(result.astype("f8"), exact.astype("f4").astype("f8"), rtol=2.5e-7, atol=1.5e-45)
    normal = a[5000:] >= -126  # a card computes what is below as the square of half the power
    assert np.array_equal(result[5000:][normal], np.exp2(a[5000:][normal].astype("f8")).astype("f4"))


def directed(x: Fraction, mode: str, kind: str) -> float:
    """The nearest float to x in the rounding direction `mode`; x is in the normal range."""
    f = {"f32": np.float32, "f64": np.float64}[kind]
    near = f(x.numerator / x.denominator)
    down, up = (
        (np.nextafter(near, f(-np.inf)), near) if Fraction(float(near)) > x else (near, np.nextafter(near, f(np.inf)))
    )
    if Fraction(float(near)) == x:
        return float(near)
    if mode == "rm" or (mode == "rz" and x > 0):
        return float(down)
    return float(up)


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_directed_rounding(mode: str, kind: str) -> None:
    rng = np.random.default_rng(9)
    a, b, c = (rng.uniform(-8, 8, 77).astype(DTYPE[kind]) for _ in range(3))
    exact = [tuple(Fraction(float(v)) for v in row) for row in zip(a, b, c, strict=True)]
    for name, function in (
        ("add", lambda x, y, z: x + y), ("sub", lambda x, y, z: x - y), ("mul", lambda x, y, z: x * y),
        ("div", lambda x, y, z: x / y), ("fma", lambda x, y, z: x * y + z),
    ):  # fmt: skip
        operands = "%a0, %a1, %a2" if name == "fma" else "%a0, %a1"
        (result,) = apply(f"{name}.{mode}.{kind} %d0, {operands};", [a, b, c], DTYPE[kind])
        assert result.tolist() == [directed(function(*row), mode, kind) for row in exact], name
    (result,) = apply(f"abs.{kind} %a0, %a0; sqrt.{mode}.{kind} %d0, %a0;", [a], DTYPE[kind])
    for value, x in zip(result, np.abs(a), strict=True):
        low, high = (np.nextafter(value, -np.inf), np.nextafter(value, np.inf))
        square, x_exact = Fraction(float(value)) ** 2, Fraction(float(x))
        if mode == "rp":
            assert square >= x_exact > Fraction(float(low)) ** 2
        else:
            assert square <= x_exact < Fraction(float(high)) ** 2


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_directed_narrowing(mode: str) -> None:
    a = np.random.default_rng(2).uniform(-8, 8, 77)
    (result,) = apply(f"cvt.{mode}.f32.f64 %d0, %a0;", [a], "f4")
    assert result.tolist() == [directed(Fraction(float(x)), mode, "f32") for x in a]
    i = integers("i4")
    (result,) = apply(f"cvt.{mode}.f32.s32 %d0, %a0;", [i], "f4")
    assert result.tolist() == [directed(Fraction(int(x)), mode, "f32") for x in i]
    w = integers("u8")
    (result,) = apply(f"cvt.{mode}.f64.u64 %d0, %a0;", [w], "f8")
    assert result.tolist() == [directed(Fraction(int(x)), mode, "f64") for x in w]


@pytest.mark.parametrize("source", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("to", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("sat", ["", ".sat"])
def test_integer_conversion(source: str, to: str, sat: str) -> None:
    a = integers(f"{'i' if source[0] == 's' else 'u'}{max(2, int(source[1:]) // 8)}")
    n, m = int(source[1:]), int(to[1:])
    out = f"{'i' if to[0] == 's' else 'u'}{max(2, m // 8)}"
    (result,) = apply(f"cvt{sat}.{to}.{source} %d0, %a0;", [a], out)
    for x, got in zip(a.tolist(), result.tolist(), strict=True):
        value = x & ((1 << n) - 1)
        value -= (1 << n) if source[0] == "s" and value >> (n - 1) else 0
        low, high = (-(1 << (m - 1)), (1 << (m - 1)) - 1) if to[0] == "s" else (0, (1 << m) - 1)
        if sat:
            expected = max(low, min(high, value))
        else:
            expected = value & ((1 << m) - 1)
            expected -= (1 << m) if to[0] == "s" and expected >> (m - 1) else 0
        assert got == expected, (x, got, expected)


@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
@pytest.mark.parametrize("to", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize(
    ("mode", "function"), [("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)]
)
def test_float_to_integer(source: str, to: str, mode: str, function: Callable[[Array], Array]) -> None:
    a = floats(DTYPE[source], span=40 if source == "f64" else 14)
    a[10:20] = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49, 100.5, -100.5, 3.0], a.dtype)
    m = int(to[1:])
    out = f"{'i' if to[0] == 's' else 'u'}{max(2, m // 8)}"
    (result,) = apply(f"cvt.{mode}.{to}.{source} %d0, %a0;", [a], out)
    low, high = (-(1 << (m - 1)), (1 << (m - 1)) - 1) if to[0] == "s" else (0, (1 << m) - 1)
    for x, got in zip(a, result.tolist(), strict=True):
        if math.isnan(x):
            highest = 1 << (m - 1) if to[0] == "u" else -(1 << (m - 1))
            expected = highest if m == 64 or source == "f64" else 0  # as an H200 answers
        elif math.isinf(x):
            expected = high if x > 0 else low
        else:
            expected = max(low, min(high, int(function(np.float64(x)))))
        assert got == expected, (x, got, expected)


@pytest.mark.parametrize("source", ["u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("to", ["f16", "f32", "f64"])
def test_integer_to_float(source: str, to: str) -> None:
    n = int(source[1:])
    a = integers(f"{'i' if source[0] == 's' else 'u'}{max(2, n // 8)}")
    (result,) = apply(f"cvt.rn.{to}.{source} %d0, %a0;", [a], DTYPE[to])
    values = (a & 0xFF) if n == 8 else a
    with np.errstate(over="ignore"):
        same(result, values.astype(DTYPE[to]))


@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
@pytest.mark.parametrize("to", ["f16", "f32", "f64"])
def test_float_to_float(source: str, to: str) -> None:
    a = floats(DTYPE[source], span=20 if source != "f16" else 10)
    mode = ".rn" if int(to[1:]) < int(source[1:]) else ""
    if source == to:
        mode = ".rni"
    (result,) = apply(f"cvt{mode}.{to}.{source} %d0, %a0;", [a], DTYPE[to])
    with np.errstate(all="ignore"):
        same(result, np.rint(a) if source == to else a.astype(DTYPE[to]))


def bf16(values: Array) -> Array:
    """f32 rounded to bf16, nearest even, as uint16; a NaN is 0x7fff."""
    raw = values.astype("f4").view("u4").astype("u8")
    rounded = ((raw + 0x7FFF + (raw >> 16 & 1)) >> 16).astype("u2")
    return np.where(np.isnan(values), 0x7FFF, rounded).astype("u2")


def widen(values: Array) -> Array:
    return (values.astype("u4") << 16).view("f4")


def test_bf16() -> None:
    a, b = floats("f4", seed=1), floats("f4", seed=2)
    x, y = bf16(a), bf16(b)
    (result,) = apply("cvt.rn.bf16.f32 %d0, %a0;", [a], "u2")
    assert np.array_equal(result, x)
    same(apply("cvt.f32.bf16 %d0, %a0;", [x], "f4")[0], widen(x))
    with np.errstate(all="ignore"):
        for name, function in (("add", np.add), ("mul", np.multiply), ("max", np.fmax)):
            (result,) = apply(f"{name}{'.rn' if name != 'max' else ''}.bf16 %d0, %a0, %a1;", [x, y], "u2")
            assert np.array_equal(result, bf16(function(widen(x), widen(y)))), name
        pair = x.astype("u4") | y.astype("u4") << 16
        (result,) = apply("fma.rn.bf16x2 %d0, %a0, %a0, %a1;", [pair, pair[::-1].copy()], "u4")
        low = bf16(widen(x) * widen(x) + widen(x[::-1]))
        assert np.array_equal((result & 0xFFFF).astype("u2"), low)
    (result,) = apply("cvt.rn.bf16x2.f32 %d0, %a0, %a1;", [a, b], "u4")
    assert np.array_equal(result, bf16(a).astype("u4") << 16 | bf16(b))


def directed_bf16(values: Array, mode: str) -> Array:
    """Exact values rounded in a direction: the bits of positive bf16 are in the order of their values."""
    exact = values.astype("f8")
    table = widen(np.arange(0x7F81)).astype("f8")
    bits = np.searchsorted(table, np.abs(exact), "right") - 1
    bits = np.minimum(bits, 0x7F80)
    away = {"rz": False, "rm": exact < 0, "rp": exact > 0}[mode]
    bits += (table[bits] != np.abs(exact)) & away
    nan = 0x7FC0 if values.dtype == "f8" else 0x7FFF  # of f64 the payload is kept
    return np.where(np.isnan(exact), nan, bits | np.signbit(exact).astype(int) << 15).astype("u2")


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("source", ["f16", "f32", "f64", "s32", "u32", "s16"])
def test_directed_to_bf16(source: str, mode: str) -> None:
    """numba's bindings of CUDA's bf16 and fp8 headers use them (cvt.rm.bf16.f32)."""
    if source[0] == "f":
        a = floats(DTYPE[source], span=10 if source == "f16" else 45)
    else:
        a = integers({"s32": "i4", "u32": "u4", "s16": "i2"}[source])
    (result,) = apply(f"cvt.{mode}.bf16.{source} %d0, %a0;", [a], "u2")
    assert np.array_equal(result, directed_bf16(a, mode))


def test_f16x2() -> None:
    a, b = floats("f2", 154, seed=1), floats("f2", 154, seed=2)
    x, y = a.view("u4"), b.view("u4")
    with np.errstate(all="ignore"):
        for name, function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("min", np.fmin)):
            (result,) = apply(f"{name}.f16x2 %d0, %a0, %a1;", [x, y], "u4")
            same(result.view("f2"), function(a, b))
        (result,) = apply("cvt.rn.f16x2.f32 %d0, %a0, %a1;", [a.astype("f4")[:77], b.astype("f4")[:77]], "u4")
        same(result.view("f2")[1::2], a[:77])
        same(result.view("f2")[::2], b[:77])
    (result,) = apply(
        "setp.lt.f16x2 %p1|%p2, %a0, %a1; selp.u32 %d0, 1, 0, %p1; @%p2 add.u32 %d0, %d0, 2;", [x, y], "u4"
    )
    assert result.tolist() == ((a < b)[::2] + 2 * (a < b)[1::2]).tolist()


def test_saturation_and_flushing() -> None:
    a, b = floats("f4", seed=1), floats("f4", seed=2)
    with np.errstate(all="ignore"):
        expected = np.nan_to_num(np.clip(a + b, 0, 1), nan=0.0)
        same(apply("add.sat.f32 %d0, %a0, %a1;", [a, b], "f4")[0], expected + np.float32(0))
    tiny = np.array([1e-40, -1e-40, 1e-30, 2e-38, -2e-38, 1.0], "f4")
    half = np.full(6, 0.5, "f4")
    flushed = np.array([0, -0.0, 5e-31, 0, -0.0, 0.5], "f4")
    for extra in ("", "mov.f64 %x5, 0d3FF0000000000000; add.f64 %x5, %x5, %x5;"):  # flushed by the CPU, by the code
        same(apply(f"{extra} mul.ftz.f32 %d0, %a0, %a1;", [tiny, half], "f4")[0], flushed)
    same(apply("mul.f32 %d0, %a0, %a1;", [tiny, half], "f4")[0], tiny * half)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("lt", lambda a, b: a < b), ("equ", lambda a, b: ~((a < b) | (a > b))), ("ne", lambda a, b: (a < b) | (a > b)),
        ("neu", lambda a, b: a != b), ("geu", lambda a, b: ~(a < b)), ("num", lambda a, b: ~np.isnan(a) & ~np.isnan(b)),
        ("nan", lambda a, b: np.isnan(a) | np.isnan(b)),
    ],
)  # fmt: skip
def test_comparison(name: str, function: Callable[[Array, Array], Array]) -> None:
    a, b = floats("f8", seed=1), floats("f8", seed=2)
    b[::4] = a[::4]
    (result,) = apply(f"setp.{name}.f64 %p1, %a0, %a1; selp.u32 %d0, 1, 0, %p1;", [a, b], "u4")
    assert result.tolist() == function(a, b).astype(int).tolist()


def test_testp() -> None:
    a = np.array([0.0, 1.0, np.inf, -np.inf, np.nan, 1e-40, -3.0], "f4")
    expected = {
        "finite": [1, 1, 0, 0, 0, 1, 1], "infinite": [0, 0, 1, 1, 0, 0, 0], "number": [1, 1, 1, 1, 0, 1, 1],
        "notanumber": [0, 0, 0, 0, 1, 0, 0], "normal": [1, 1, 0, 0, 0, 0, 1], "subnormal": [0, 0, 0, 0, 0, 1, 0],
    }  # fmt: skip
    for name, values in expected.items():
        assert apply(f"testp.{name}.f32 %p1, %a0; selp.u32 %d0, 1, 0, %p1;", [a], "u4")[0].tolist() == values


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64", "s16"])
def test_integers_to_half_directed(kind: str, mode: str) -> None:
    """Checked by exact comparison with all f16 values."""
    values = integers(f"{'i' if kind[0] == 's' else 'u'}{int(kind[1:]) // 8}", seed=3)
    halves = np.arange(0x7C00, dtype="u2").view("f2").astype("f8")
    (got,) = apply(f"cvt.{mode}.f16.{kind} %d0, %a0;", [values], "u2")
    for value, code in zip(values.tolist(), got.view("f2").tolist(), strict=True):
        size, negative = abs(value), value < 0
        away = (mode == "rp") != negative and mode != "rz"
        below, above = halves[halves <= size].max(), halves[halves >= size]
        wanted = (above.min() if above.size else np.inf) if away else below
        assert code == (-wanted if negative else wanted), (value, code)
