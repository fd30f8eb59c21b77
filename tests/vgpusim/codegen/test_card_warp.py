"""mma of floats sums as an H200's tensor cores do: all of k at once, with aligned and truncated terms."""

from __future__ import annotations

import numpy as np
import pytest

from tests.vgpusim.codegen.tensor_core import FORMS, RECORDED, WORDS, Mma, in_order, inputs, reference, simulate


def _name(form: Mma) -> str:
    return f"{form.shape}-{form.d}-{form.kind}-{form.b_type}"


@pytest.mark.parametrize("form", RECORDED, ids=_name)
def test_as_recorded_on_a_card(form: Mma) -> None:
    """The recorded comparison of an H200 with f32 sums is reproduced: how many results differ, and the first one."""
    words = inputs(form)
    result, plain = simulate(form, words), in_order(form, words)
    assert np.array_equal(result, reference(form, words))
    differs = result != plain
    assert int(differs.sum()) == form.differing
    assert int(result[differs][0]) == form.first


@pytest.mark.parametrize("form", FORMS, ids=_name)
def test_usual_numbers(form: Mma) -> None:
    words = inputs(form)
    assert np.array_equal(simulate(form, words), reference(form, words))


@pytest.mark.parametrize("form", FORMS, ids=_name)
def test_any_bits(form: Mma) -> None:
    """Subnormals, huge and tiny numbers, infinities and NaNs; NaNs are the canonical one."""
    rng = np.random.default_rng(3)
    words = rng.integers(0, 1 << 32, (32 * 32, WORDS), dtype=np.uint32)
    rare = rng.random(words.shape)
    words[rare < 0.3] = 0
    calm = {"f16": np.uint32(0x3FFF3FFF), "e4m3": np.uint32(0x3F3F3F3F), "e5m2": np.uint32(0x3F3F3F3F)}.get(
        form.kind, np.uint32(0x1FFF1FFF)
    )  # half of the warps hold no infinity and no NaN
    words[: len(words) // 2] &= calm | np.uint32(0x80008000)
    result, expected = simulate(form, words), reference(form, words)
    if form.d == "f32":
        nan = np.isnan(expected.view(np.float32))
        assert (result[nan] == 0x7FFFFFFF).all()
        assert np.array_equal(result[~nan], expected[~nan])
        return
    got, wanted = result.view(np.uint16), expected.view(np.uint16)
    nan = np.isnan(wanted.view(np.float16))
    assert (got[nan] == 0x7FFF).all()
    assert np.array_equal(got[~nan], wanted[~nan])
