"""Every form of data/forms-h200.tsv.xz gives the bits that an H200 gave, but for those that are known to differ."""

from __future__ import annotations

import re

import pytest

from tests.vgpusim.codegen import card_batch, more_forms, warp_forms
from tests.vgpusim.codegen.card_batch import DIFFERENT, element_forms, recorded, warps, wrong_elements, wrong_warps

_AT_ONCE, _WARPS_AT_ONCE = 60, 25


def test_every_form_is_recorded() -> None:
    texts = {form.text for form in (*more_forms.forms(), *warp_forms.forms()) if "mma." not in form.text}
    assert texts == set(recorded())


def test_what_is_said_to_differ_does() -> None:
    for pattern in DIFFERENT:
        assert any(re.search(pattern, text) for text in recorded())
    assert set(wrong_elements(element_forms(different=True))) == {f.text for f in element_forms(different=True)}
    found = wrong_warps(warps(different=True))
    assert len(found) == 2 * len(warps(different=True))  # each was recorded for moderate numbers and for random bits


@pytest.mark.parametrize("first", range(0, len(element_forms()), _AT_ONCE))
def test_elements(first: int) -> None:
    assert wrong_elements(element_forms()[first : first + _AT_ONCE]) == []


@pytest.mark.parametrize("first", range(0, len(warps()), _WARPS_AT_ONCE))
def test_warps(first: int) -> None:
    assert wrong_warps(warps()[first : first + _WARPS_AT_ONCE]) == []


def test_a_wrong_digest_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    form, warp = element_forms()[0], warps()[0]
    right = recorded()
    changed = {form.text: ("0" * 10,), warp.text: (right[warp.text][0], "0" * 10)}
    monkeypatch.setattr(card_batch, "recorded", lambda: right | changed)
    assert wrong_elements([form]) == [form.text]
    assert wrong_warps([warp]) == [f"special {warp.text}"]
