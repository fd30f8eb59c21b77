"""Scalar video instructions against Python integers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from vgpusim.codegen.compile import UnsupportedInstruction

from tests.vgpusim.codegen.harness import HEADER, run
from tests.vgpusim.codegen.instruction import apply, integers

RANGES = {"s32": (-(1 << 31), (1 << 31) - 1), "u32": (0, (1 << 32) - 1)}
OPERATIONS = {
    "vadd": lambda a, b: a + b, "vsub": lambda a, b: a - b, "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min, "vmax": max,
}  # fmt: skip


def signed(value: int, kind: str) -> int:
    value &= (1 << 32) - 1
    return value - (1 << 32) if kind == "s32" and value >> 31 else value


def second(result: int, c: int, name: str, kind: str) -> int:
    """As on a card: of u32, min and max are of unsigned numbers of 64 bits."""
    if name == "add":
        return result + c
    if kind == "u32":
        return {"min": min, "max": max}[name](result % (1 << 64), c)
    return {"min": min, "max": max}[name](result, signed(c, kind))


@pytest.mark.parametrize(
    ("types", "sat", "also"),
    [("s32.s32.s32", ".sat", ""), ("u32.u32.u32", "", "add"), ("s32.u32.u32", ".sat", "min"),
     ("u32.s32.u32", "", "max")],
)  # fmt: skip
@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic(name: str, types: str, sat: str, also: str) -> None:
    to, a_kind, b_kind = types.split(".")
    a, b, c = (integers("u4", seed=i) for i in range(3))
    words = f"{name}.{types}{sat}{'.' + also if also else ''} %d0, %a0, %a1{', %a2' if also else ''};"
    (got,) = apply(words, [a, b, c], "u4")
    for x, y, z, value in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist(), strict=True):
        result = OPERATIONS[name](signed(x, a_kind), signed(y, b_kind))
        if sat:
            result = max(RANGES[to][0], min(RANGES[to][1], result) if to == "s32" else result)
        if name in ("vadd", "vsub"):
            result = signed(result, "s32")
        if also:
            result = second(result, z, also, to)
        assert value == result % (1 << 32), (x, y, z)


@pytest.mark.parametrize("kinds", ["u32.u32.u32", "s32.s32.u32", "u32.s32.s32"])
@pytest.mark.parametrize("parts", [2, 4])
def test_summed_differences_of_parts(parts: int, kinds: str) -> None:
    """The sums that NVIDIA's stereoDisparity sample computes."""
    a, b, c = (integers("u4", seed=i) for i in range(3))
    (got,) = apply(f"vabsdiff{parts}.{kinds}.add %d0, %a0, %a1, %a2;", [a, b, c], "u4")
    _, a_kind, b_kind = kinds.split(".")
    as_parts = {"u32": f"u{4 // parts}", "s32": f"i{4 // parts}"}
    x, y = (v.view(as_parts[k]).reshape(-1, parts).astype("i8") for v, k in ((a, a_kind), (b, b_kind)))
    expected = np.abs(x - y).sum(1) + c
    assert np.array_equal(got, expected.astype("u4"))


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
@pytest.mark.parametrize("kind", ["s32", "u32"])
@pytest.mark.parametrize("name", ["vshl", "vshr"])
def test_shifts(name: str, kind: str, mode: str) -> None:
    a, c = integers("u4", seed=1), integers("u4", seed=2)
    b = np.resize(np.array([0, 1, 5, 31, 32, 33, 63, 64, 255, 0xFFFFFFFF], "u4"), a.size)
    (got,) = apply(f"{name}.{kind}.{kind}.u32.{mode}.add %d0, %a0, %a1, %a2;", [a, b, c], "u4")
    for x, y, z, value in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist(), strict=True):
        amount = min(y, 32) if mode == "clamp" else y % 32
        shifted = signed(x, kind) << amount if name == "vshl" else signed(x, kind) >> amount
        assert value == (shifted + z) % (1 << 32), (x, y, z)


_COMPARISONS = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater}


@pytest.mark.parametrize("kinds", ["u32.u32", "s32.s32", "s32.u32"])
@pytest.mark.parametrize("parts", [2, 4])
def test_each_part(parts: int, kinds: str) -> None:
    """All operations on halves and bytes, as NPP's kernels use them: the results are parts, or summed by .add."""
    a, b, c = (integers("u4", seed=i) for i in range(3))
    nbits, a_kind, b_kind = 32 // parts, *kinds.split(".")
    as_parts = {"u32": f"u{4 // parts}", "s32": f"i{4 // parts}"}
    x, y = (v.view(as_parts[k]).reshape(-1, parts).astype("i8") for v, k in ((a, a_kind), (b, b_kind)))
    low, high = (-(1 << nbits - 1), (1 << nbits - 1) - 1) if a_kind == "s32" else (0, (1 << nbits) - 1)
    forms: list[str] = []
    expected: list[NDArray[np.int64]] = []
    for name, result in (("vadd", x + y), ("vsub", x - y), ("vmin", np.minimum(x, y)), ("vmax", np.maximum(x, y)),
                         ("vabsdiff", np.abs(x - y)), ("vavrg", (x + y + (x + y >= 0)) >> 1)):  # fmt: skip
        types = f"{a_kind}.{kinds}"
        forms += [f"{name}{parts}.{types}", f"{name}{parts}.{types}.sat", f"{name}{parts}.{types}.add"]
        expected += [result, result.clip(low, high), result.sum(1) + c]
    for name, compare in _COMPARISONS.items():
        result = compare(x, y).astype("i8")
        forms += [f"vset{parts}.{kinds}.{name}", f"vset{parts}.{kinds}.{name}.add"]
        expected += [result, result.sum(1) + c]
    text = " ".join(f"{form} %d{i}, %a0, %a1, %a2;" for i, form in enumerate(forms))
    for form, found, wanted in zip(forms, apply(text, [a, b, c], "u4", len(forms)), expected, strict=True):
        words = wanted if wanted.ndim == 1 else ((wanted & (1 << nbits) - 1) << nbits * np.arange(parts)).sum(1)
        assert np.array_equal(found, words.astype("u4")), form


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_comparisons(kind: str) -> None:
    a, b = integers("u4", seed=1), integers("u4", seed=2)
    x, y = (v.view("i4") if kind == "s32" else v for v in (a, b))
    for name, compare in _COMPARISONS.items():
        (found,) = apply(f"vset.{kind}.{kind}.{name} %d0, %a0, %a1;", [a, b], "u4")
        assert np.array_equal(found, compare(x, y).astype("u4")), name


@pytest.mark.parametrize(
    "text",
    ["vadd.s32.s32.s32 %r0, %r1.b4, %r2.h1", "vadd2.s32.s32.s32 %r0, %r1, %r2", "vset.s32.s32 %r0, %r1, %r2",
     "vadd2.s32.s32.s32.sat.add %r0, %r1, %r2, %r3", "vadd.u32.u32.u32.sat %r0.b1, %r1, %r2, %r3",
     "vadd.s32.s32.s32.add %r0.b1, %r1, %r2, %r3", "vadd.s32.s32.s32 %r0.h1, %r1, %r2", "add.s32 %r0, %r1.b0, %r2",
     "vmad.u32.u32.u32.sat %r0, %r1, %r2, %r3", "vmad.s32.s32.s32.po %r0, %r1, %r2, %r3",
     "vadd.s32.s32.s32 %r0, %r1, %r2, %r3.b0"],
)  # fmt: skip
def test_other_forms_are_refused(text: str) -> None:
    from vgpusim.codegen.compile import PtxError

    with pytest.raises(PtxError):
        run(f"{HEADER}.visible .entry k() {{ .reg .b32 %r<4>; {text}; ret; }}", "k", 1, 32, [])


def test_multimem_fails_at_run_time_by_name() -> None:
    text = f"""{HEADER}.visible .entry k(.param .u64 p) {{ .reg .b32 %r<4>; .reg .b64 %x; ld.param.u64 %x, [p];
multimem.ld_reduce.relaxed.sys.global.add.u32 %r0, [%x]; multimem.st.relaxed.sys.global.u32 [%x], %r0;
multimem.red.relaxed.sys.global.add.u32 [%x], %r0; ret; }}"""
    events = run(text, "k", 1, 32, [0])
    assert events.failed[0][0] == 801
    assert b"multimem.ld_reduce.relaxed.sys.global.add.u32 needs a multicast object" in events.failed[0][1]


@pytest.mark.parametrize("order", ["", ".relaxed.sys", ".volatile"])
def test_128_bits(order: str) -> None:
    a = np.arange(4 * 50, dtype="u8").reshape(50, 4) * np.uint64(0x9E3779B97F4A7C15)
    out = np.zeros((50, 2), "u8")
    text = f"""{HEADER}.visible .entry k(.param .u64 in, .param .u64 out) {{
.reg .b128 %q; .reg .b64 %x<6>; .reg .b32 %t; mov.u32 %t, %tid.x;
ld.param.u64 %x0, [in]; ld.param.u64 %x1, [out];
mad.wide.u32 %x0, %t, 32, %x0; mad.wide.u32 %x1, %t, 16, %x1;
ld{order}.global.b128 %q, [%x0]; mov.b128 {{%x2, %x3}}, %q; mov.b128 %q, {{%x3, %x2}};
st{order}.global.b128 [%x1], %q; ret; }}"""
    run(text, "k", 1, 50, [a, out])
    assert np.array_equal(out, a[:, [1, 0]])


def test_prefetch_and_its_kin_do_nothing() -> None:
    a = np.arange(32, dtype="u4")
    text = f"""{HEADER}.visible .entry k(.param .u64 p) {{ .reg .b64 %x; ld.param.u64 %x, [p];
prefetch.global.L1 [%x]; prefetch.global.L2 [%x]; prefetch.global.L2::evict_last [%x]; prefetchu.L1 [%x]; ret; }}"""
    assert not run(text, "k", 1, 32, [a]).failed
    assert a.tolist() == list(range(32))


def test_unsupported_is_by_name() -> None:
    text = ".reg .b32 %r<4>; vmad.u32.u32.u32.sat %r0, %r1, %r2, %r3; ret;"
    with pytest.raises(UnsupportedInstruction, match=r"vmad\.u32\.u32\.u32\.sat.*not recorded"):
        run(f"{HEADER}.visible .entry k() {{ {text} }}", "k", 1, 32, [])
