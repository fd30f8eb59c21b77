"""mma of floats sums as an H200's tensor cores do: all of k at once, with aligned and truncated terms."""

from __future__ import annotations

import numpy as np
import pytest

from tests.vgpusim.codegen.tensor_core import RECORDED, Mma, in_order, inputs, reference, simulate


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
