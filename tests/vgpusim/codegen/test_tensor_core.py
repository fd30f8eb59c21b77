"""Products that share fragments, sums that leave f16's range on the way, and processors without AVX-512's rounding."""

from __future__ import annotations

import numpy as np
import pytest
from vgpusim.codegen import native

from tests.vgpusim.codegen.harness import HEADER, run
from tests.vgpusim.codegen.tensor_core import FORMS, WORDS, Mma, Words, inputs, kernel, reference, simulate

FORM = next(form for form in FORMS if (form.shape, form.d, form.kind) == ("m16n8k16", "f32", "f16"))


def _chain(steps: int) -> str:
    """PTX of products with the same B: A grows by a bit in between, and each sum is added to."""
    lines = [".visible .entry k(.param .u64 in, .param .u64 out) { .reg .b32 %a<10>, %d<4>, %t<4>; .reg .b64 %x<4>;"]
    lines += ["mov.u32 %t0, %tid.x; ld.param.u64 %x0, [in]; ld.param.u64 %x1, [out];"]
    lines += [f"mad.wide.u32 %x0, %t0, {4 * WORDS}, %x0; mad.wide.u32 %x1, %t0, 16, %x1;"]
    lines += [f"ld.global.b32 %a{i}, [%x0+{4 * i}];" for i in range(WORDS)]
    for _ in range(steps):
        lines += [FORM.text, *(f"mov.b32 %a{6 + i}, %d{i};" for i in range(4)), "xor.b32 %a2, %a2, 1;"]
    return HEADER + "\n".join([*lines, *(f"st.global.b32 [%x1+{4 * i}], %d{i};" for i in range(4)), "ret; }"])


def test_a_changed_register_is_a_new_fragment() -> None:
    words = inputs(FORM)[:32]
    result = np.zeros((32, 4), np.uint32)
    run(_chain(3), "k", 1, 32, [words, result])
    expected = words.copy()
    for _ in range(3):
        expected[:, 6:10] = reference(FORM, expected)
        expected[:, 2] ^= 1
    assert np.array_equal(result, expected[:, 6:10])


def test_more_fragments_than_are_kept() -> None:
    """Ten fragments of B, one half of each from the next, used twice."""
    count = 10
    rng = np.random.default_rng(11)
    words = inputs(FORM)[:32]
    others = (rng.standard_normal((32, count + 1, 2)).astype(np.float16).view(np.uint32))[..., 0].copy()
    lines = [
        ".visible .entry k(.param .u64 in, .param .u64 more, .param .u64 out) { .reg .b32 %a<10>, %b<11>, %d<4>, %t;",
        ".reg .b64 %x<3>; mov.u32 %t, %tid.x; ld.param.u64 %x0, [in]; ld.param.u64 %x1, [more];",
        f"ld.param.u64 %x2, [out]; mad.wide.u32 %x0, %t, {4 * WORDS}, %x0;",
        f"mad.wide.u32 %x1, %t, {4 * (count + 1)}, %x1; mad.wide.u32 %x2, %t, 16, %x2;",
        *(f"ld.global.b32 %a{i}, [%x0+{4 * i}];" for i in range(WORDS)),
        *(f"ld.global.b32 %b{i}, [%x1+{4 * i}];" for i in range(count + 1)),
        *(f"mov.b32 %d{i}, %a{6 + i};" for i in range(4)),
    ]
    order = [*range(count), *range(count)]
    for b in order:
        lines.append(
            f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%d0, %d1, %d2, %d3}}, {{%a0, %a1, %a2, %a3}}, "
            f"{{%b{b}, %b{b + 1}}}, {{%d0, %d1, %d2, %d3}};"
        )
    lines += [*(f"st.global.b32 [%x2+{4 * i}], %d{i};" for i in range(4)), "ret; }"]
    result = np.zeros((32, 4), np.uint32)
    run(HEADER + "\n".join(lines), "k", 1, 32, [words, others, result])
    expected = words.copy()
    for b in order:
        expected[:, 4:6] = others[:, b : b + 2]
        expected[:, 6:10] = reference(FORM, expected)
    assert np.array_equal(result, expected[:, 6:10])


def test_a_half_that_overflows_before_the_last_k() -> None:
    """8-bit factors, of which half the k are added at once: an infinity after the first half stays one, or becomes
    NaN."""
    form = next(form for form in FORMS if (form.shape, form.d, form.kind) == ("m16n8k32", "f16", "e4m3"))
    words = np.random.default_rng(5).integers(0, 1 << 32, (32 * 32, WORDS), dtype=np.uint32) & np.uint32(0xF7F7F7F7)
    words[:, 6:] = 0
    expected = reference(form, words)
    assert np.isinf(expected.view(np.float16)).any()
    assert np.array_equal(simulate(form, words), expected)


@pytest.mark.parametrize("form", [FORM], ids=str)
def test_without_a_rounding_mode_of_an_instruction(form: Mma, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "has_own_rounding", lambda: False)
    words: Words = inputs(form)
    result = np.zeros((len(words), form.c), np.uint32)
    run(kernel(form) + "// without\n", "k", len(words) // 32, 32, [words, result])
    assert np.array_equal(result, reference(form, words))
