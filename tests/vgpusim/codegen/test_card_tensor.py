"""Products of matrices give the bits that an H200 gives (data/tensor-h200.tsv, recorded on 2026-11-29 by
tests/gpu/oracle.py): of usual numbers, and of any bits, infinities and NaNs among them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.vgpusim.codegen import edge_inputs, tensor_core, warp_forms, warpgroup_forms
from tests.vgpusim.codegen.card_forms import digest
from tests.vgpusim.codegen.tensor_core import Mma
from tests.vgpusim.codegen.warp_forms import WarpForm, Words

_FLOATS = re.compile(r"mma\.sync\.aligned\.(m16n8k\d+)\.row\.col\.(f32|f16)\.(f16|bf16|tf32|e[45]m[23])\.(\w+)\.")


def name_of(form: WarpForm) -> str:
    """The instruction, and what distinguishes it from others of its name, without registers."""
    found = re.search(r"wmma\.mma\S+|wgmma.*|(?<![.\w])mma.*", form.text.removesuffix(";"))
    assert found
    return re.sub(r"[{]?%\w+(, %\w+)*[}]?,? ?", "", found[0].split("; ")[0]).strip()


def _recorded() -> dict[tuple[str, str], str]:
    path = Path(__file__).with_name("data") / "tensor-h200.tsv"
    lines = [line.split("\t") for line in path.read_text().splitlines() if not line.startswith("#")]
    return {(name, inputs): digest for name, inputs, digest in lines}


RECORDED = _recorded()
_WARP = {name_of(form): form for form in warp_forms.forms() if "mma." in form.text}
_GROUPS = {name_of(form): form for form in warpgroup_forms.forms()}
_NAMES = sorted({name for name, _ in RECORDED} & set(_WARP))
_INTEGERS = [name for name in _NAMES if ".s32" in name]  # exact: test_mma_integer.py has their reference


def _dense(form: WarpForm) -> Mma | None:
    """The form as tensor_core.py has it, if its reference knows it."""
    found = _FLOATS.match(form.text)
    if found is None:
        return None
    (_, a), (_, b), (_, c) = form.parts
    shape, d, kind, b_kind = found.groups()
    return Mma(shape, d, kind, a, b, c, b_kind="" if kind == b_kind else b_kind)


def _padded(words: Words) -> Words:
    return np.pad(words, ((0, 0), (0, tensor_core.WORDS - words.shape[1])))


def test_every_form_is_recorded() -> None:
    assert {name for name, _ in RECORDED} <= {*_WARP, *_GROUPS}
    assert len(RECORDED) == 2 * len({name for name, _ in RECORDED})


@pytest.mark.parametrize("name", [*(name for name in _NAMES if name not in _INTEGERS), *_INTEGERS[::6]])
def test_warps(name: str) -> None:
    form, wrong = _WARP[name], []
    for special in (False, True):
        words, inputs = warp_forms.inputs(form, special), "special" if special else "usual"
        if digest(warp_forms.simulate(form, words)) != RECORDED[name, inputs]:
            wrong.append(inputs)
        if (mma := _dense(form)) and digest(tensor_core.reference(mma, _padded(words))) != RECORDED[name, inputs]:
            wrong.append(f"reference, {inputs}")
    assert wrong == []


@pytest.mark.parametrize("name", sorted(_GROUPS))
def test_warpgroups(name: str) -> None:
    form = _GROUPS[name]
    for special in (False, True):
        result = warpgroup_forms.simulate(form, warpgroup_forms.inputs(form, special))
        assert digest(result) == RECORDED[name, "special" if special else "usual"]


@pytest.mark.parametrize("name", [name for name, form in _WARP.items() if _dense(form)])
def test_edges(name: str) -> None:
    """Sums near the greatest and the least of a type, and of terms that cancel, are those of the reference."""
    form = _WARP[name]
    mma = _dense(form)
    assert mma
    for inputs in edge_inputs.CLASSES:
        words = edge_inputs.inputs(form, inputs)
        assert np.array_equal(warp_forms.simulate(form, words), tensor_core.reference(mma, _padded(words))), inputs
