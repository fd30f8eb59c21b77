"""Every arithmetic form of data/arithmetic-h200.tsv gives the bits that an H200 gives, NaNs included."""

from __future__ import annotations

import re

import pytest
from vgpusim.codegen import compile as compiler

from tests.vgpusim.codegen import card_forms
from tests.vgpusim.codegen.card_batch import wrong_elements
from tests.vgpusim.codegen.card_forms import Form, digest, forms, inputs, simulate

_SHARDS = 10


def _wrong(chosen: list[Form]) -> list[str]:
    return [form.text for form in chosen if digest(simulate(form)) != form.digest]


def test_inputs_are_the_cards() -> None:
    """Distinguishes a numpy that draws other numbers from a wrong result."""
    assert digest(inputs()) == "7ab3a1ffe2"
    assert len(forms()) == 610


@pytest.mark.parametrize("shard", range(_SHARDS))
def test_same_bits(shard: int) -> None:
    assert wrong_elements(forms()[shard::_SHARDS]) == []


@pytest.mark.parametrize("opcode", ["add", "mul", "fma", "div", "sqrt", "min", "abs"])
def test_flushing_beside_other_arithmetic(monkeypatch: pytest.MonkeyPatch, opcode: str) -> None:
    """If every operation of a kernel is .ftz, the CPU flushes subnormals; else the code does, with the same bits."""
    monkeypatch.setattr(compiler, "_flushes_everything", lambda graph: False)
    monkeypatch.setattr(card_forms, "HEADER", card_forms.HEADER + "// other code, not to meet the harness's cache\n")
    chosen = [form for form in forms() if re.match(rf"{opcode}\..*ftz.*\.f32", form.text)]
    assert chosen
    assert _wrong(chosen) == []


_UNIFORM = ["add.rn.f32 D, A, B;", "fma.rn.f64 D, A, B, C;", "mul.rm.f64 D, A, B;", "max.NaN.f16x2 D, A, B;",
            "cvt.rn.bf16.f32 D, A;", "sqrt.rp.ftz.f32 D, A;"]  # fmt: skip


@pytest.mark.parametrize("text", _UNIFORM)
def test_uniform_operands(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Warps of one lane take the scalar path."""
    monkeypatch.setattr(card_forms, "_BLOCK", 1)
    monkeypatch.setattr(card_forms, "_ELEMENT", "mov.u32 %t0, %ctaid.x;")
    (form,) = (form for form in forms() if form.text == text)
    assert _wrong([form]) == []
