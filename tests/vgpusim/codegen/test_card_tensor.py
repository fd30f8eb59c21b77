"""Products of matrices give the bits that an H200 gives (data/tensor-h200.tsv and sparse-h200.tsv, recorded on
2026-11-29 and -30 by tests/gpu/oracle.py): of usual numbers, of any bits, and at the edges of their types. So do the
references in numpy."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.vgpusim.codegen import edge_inputs, sparse_forms, sparse_reference, tensor_core, warp_forms, warpgroup_forms
from tests.vgpusim.codegen.card_forms import digest
from tests.vgpusim.codegen.tensor_core import Mma
from tests.vgpusim.codegen.warp_forms import WarpForm, Words

_FLOATS = re.compile(r"mma\.sync\.aligned\.(m16n8k\d+)\.row\.col\.(f32|f16)\.(f16|bf16|tf32|e[45]m[23])\.(\w+)\.")


def name_of(form: WarpForm) -> str:
    """The instruction, and what distinguishes it from others of its name, without registers."""
    found = re.search(r"wmma\.mma\S+|wgmma.*|(?<![.\w])mma.*", form.text.removesuffix(";"))
    assert found
    return re.sub(r"[{]?%\w+(, %\w+)*[}]?,? ?", "", found[0].split("; ")[0]).strip()


def _recorded(file: str) -> dict[str, dict[str, str]]:
    """Digests by instruction and inputs."""
    path = Path(__file__).with_name("data") / file
    rows = [line.split("\t") for line in path.read_text().splitlines() if not line.startswith("#")]
    return {name: dict(part.split(":") for part in parts) for name, *parts in rows}


RECORDED, SPARSE = _recorded("tensor-h200.tsv"), _recorded("sparse-h200.tsv")
_WARP = {name_of(form): form for form in warp_forms.forms() if "mma." in form.text and "mma.sp" not in form.text}
_GROUPS = {name_of(form): form for form in warpgroup_forms.forms()}
_SPARSE = {name_of(form): form for form in sparse_forms.forms()}
_INTEGERS = [name for name in _WARP if ".s32" in name]  # exact: test_mma_integer.py has their reference
# Of each form one sparsity selector; mma.sp with and without `ordered_metadata` gives the same results here.
_SOME_SPARSE = {name[:-1]: name for name in SPARSE if "ordered" in name and not re.search(r"\.u[48]|e5m2\.e", name)}


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


def _inputs(form: WarpForm, inputs: str) -> Words:
    if inputs in edge_inputs.CLASSES:
        return edge_inputs.inputs(form, inputs)
    if form in warpgroup_forms.forms():
        return warpgroup_forms.inputs(form, inputs == "special")
    return warp_forms.inputs(form, inputs == "special")


def test_every_form_is_recorded() -> None:
    assert set(RECORDED) == {*_WARP, *_GROUPS}
    assert {name for name in _SPARSE if "f16.e" not in name} == set(SPARSE)  # no sm_90 has 8-bit floats with f16 sums


@pytest.mark.parametrize("name", [*(name for name in _WARP if name not in _INTEGERS), *_INTEGERS[::6]])
def test_warps(name: str) -> None:
    form = _WARP[name]
    results = {inputs: digest(warp_forms.simulate(form, _inputs(form, inputs))) for inputs in RECORDED[name]}
    assert results == RECORDED[name]
    if mma := _dense(form):
        results = {i: digest(tensor_core.reference(mma, _padded(_inputs(form, i)))) for i in RECORDED[name]}
        assert results == RECORDED[name], "reference"


@pytest.mark.parametrize("name", sorted(_GROUPS))
def test_warpgroups(name: str) -> None:
    form = _GROUPS[name]
    results = {inputs: digest(warpgroup_forms.simulate(form, _inputs(form, inputs))) for inputs in RECORDED[name]}
    assert results == RECORDED[name]


@pytest.mark.parametrize("name", _SOME_SPARSE.values())
def test_sparse(name: str) -> None:
    form = _SPARSE[name]
    words = {inputs: sparse_forms.inputs(form, inputs) for inputs in SPARSE[name]}
    assert {inputs: digest(warp_forms.simulate(form, given)) for inputs, given in words.items()} == SPARSE[name]
    results = {inputs: digest(sparse_reference.reference(form, given)) for inputs, given in words.items()}
    assert results == SPARSE[name], "reference"
