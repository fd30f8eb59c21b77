"""Atomic operations: whose f32 subnormals a card flushes, and 128 bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.vgpusim.codegen.harness import HEADER, run

_SMALL = 0x00000123  # a subnormal; twice it is one, too


@pytest.mark.parametrize("flushing", [False, True])
@pytest.mark.parametrize("operation", ["atom", "red"])
@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("generic", [False, True])
def test_subnormal_sums(space: str, generic: bool, operation: str, flushing: bool) -> None:
    """Global memory adds with zeros for subnormals and shared memory does not, by generic addresses, too, and whether
    or not the kernel's other arithmetic is .ftz."""
    named, result = "" if generic else f".{space}", "%f1, " if operation == "atom" else ""
    words, out = np.full(32, _SMALL, np.uint32), np.zeros(32, np.uint32)
    text = f"""{HEADER}.visible .entry k(.param .u64 p, .param .u64 out) {{
.shared .align 8 .b8 own[128]; .reg .b32 %r<4>; .reg .b64 %x<6>; .reg .f32 %f<4>;
ld.param.u64 %x0, [p]; ld.param.u64 %x5, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %x1, %r0, 4; add.u64 %x2, %x0, %x1;
add.u64 %x5, %x5, %x1; ld.global.f32 %f0, [%x2]; mov.u64 %x3, own; add.u64 %x3, %x3, %x1; st.shared.f32 [%x3], %f0;
cvta.shared.u64 %x4, %x3; {"" if space == "global" else "mov.u64 %x2, %x4;" if generic else "mov.u64 %x2, %x3;"}
{operation}{named}.add.f32 {result}[%x2], %f0; ld{named}.f32 %f2, [%x2]; st.global.f32 [%x5], %f2;
{"add.ftz.f32 %f3, %f0, %f0; setp.ne.ftz.f32 %p, %f3, 0f00000000; @%p st.global.u32 [%x5], 7;" if flushing else ""}
ret; }}""".replace(".reg .f32", ".reg .pred %p; .reg .f32")
    run(text, "k", 1, 32, [words, out])
    assert set(out.tolist()) == {0 if space == "global" else 2 * _SMALL}


@pytest.mark.parametrize("space", ["global", "shared", ""])
def test_128_bits(space: str) -> None:
    """cas swaps where all 128 bits are equal, exch always; both return what was there."""
    rng = np.random.default_rng(1)
    words, out = rng.integers(0, 1 << 63, (32, 6), dtype=np.uint64), np.zeros((32, 6), np.uint64)
    words[:, 2:4] = words[:, :2]  # to compare with
    words[::3, 3] ^= np.uint64(1)
    where, named = {"global": ("%x1", ".global"), "shared": ("%x3", ".shared"), "": ("%x1", "")}[space]
    text = f"""{HEADER}.visible .entry k(.param .u64 in, .param .u64 out) {{
.shared .align 16 .b8 own[512]; .reg .b32 %r<2>; .reg .b64 %x<12>; .reg .b128 %q<6>;
ld.param.u64 %x0, [in]; ld.param.u64 %x2, [out]; mov.u32 %r0, %tid.x; mad.wide.u32 %x0, %r0, 48, %x0;
mad.wide.u32 %x1, %r0, 48, %x2; mov.u64 %x3, own; mad.wide.u32 %x3, %r0, 16, %x3;
ld.global.v2.b64 {{%x4, %x5}}, [%x0]; ld.global.v2.b64 {{%x6, %x7}}, [%x0+16]; ld.global.v2.b64 {{%x8, %x9}}, [%x0+32];
st{named}.v2.b64 [{where}], {{%x4, %x5}}; mov.b128 %q1, {{%x6, %x7}}; mov.b128 %q2, {{%x8, %x9}};
atom{named}.cas.b128 %q3, [{where}], %q1, %q2; mov.b128 {{%x6, %x7}}, %q3; mov.b128 %q1, {{%x4, %x4}};
atom{named}.exch.b128 %q4, [{where}], %q1; mov.b128 {{%x8, %x9}}, %q4; ld{named}.v2.b64 {{%x4, %x5}}, [{where}];
st.global.v2.b64 [%x1], {{%x4, %x5}}; st.global.v2.b64 [%x1+16], {{%x6, %x7}}; st.global.v2.b64 [%x1+32], {{%x8, %x9}};
ret; }}"""
    run(text, "k", 1, 32, [words, out])
    equal = (words[:, :2] == words[:, 2:4]).all(1)
    assert np.array_equal(out[:, :2], words[:, [0, 0]])
    assert np.array_equal(out[:, 2:4], words[:, :2])
    assert np.array_equal(out[:, 4:], np.where(equal[:, None], words[:, 4:], words[:, :2]))
    assert 0 < equal.sum() < 32


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_least_and_greatest_of_zeros(kind: str) -> None:
    """-0 is below +0, whichever comes first; a NaN loses."""
    nan, one, minus = {"f16x2": 0x7E00, "bf16x2": 0x7FC0}[kind], 0x3C00, 0x8000
    first = np.resize(np.array([0, minus, 0, minus, nan, one], np.uint32), 32)
    second = np.resize(np.array([minus, 0, one, one, one, nan], np.uint32), 32)
    for operation, expected in (("min", [minus, minus, 0, minus, one, one]), ("max", [0, 0, one, one, one, one])):
        memory = np.stack([first, first], 1)
        text = f"""{HEADER}.visible .entry k(.param .u64 p, .param .u64 q) {{ .reg .b32 %r<4>; .reg .b64 %x, %y;
ld.param.u64 %x, [p]; ld.param.u64 %y, [q]; mov.u32 %r0, %tid.x; mad.wide.u32 %x, %r0, 8, %x;
mad.wide.u32 %y, %r0, 4, %y; ld.global.u32 %r1, [%y]; red.global.{operation}.noftz.v2.{kind} [%x], {{%r1, %r1}};
ret; }}"""
        run(text, "k", 1, 32, [memory, second])
        assert memory[:6].tolist() == [[value, value] for value in expected]
