"""The list of library calls and the program that runs it, tested without a device."""

import importlib
import json
from typing import Any

import numpy as np
import pytest

from tests.ecosystem import record


def every_call() -> list[Any]:
    return [call for part in record.PARTS for call in importlib.import_module(f"calls.{part}").calls()]


def test_names_are_unique_and_the_list_is_long() -> None:
    names = [call.name for call in every_call()]
    assert len(names) == len(set(names))
    assert len(names) >= 200


@pytest.mark.parametrize(
    ("found", "expected", "tolerance", "verdict"),
    [
        ([1.0, 2.0], [1, 2], 0, "right"),
        ([1.0, 2.0 + 1e-6], [1, 2], 0, "wrong"),
        ([1.0, 2.0 + 1e-6], [1, 2], 1e-6, "right"),  # the tolerance is relative to the largest magnitude
        ([1.0, np.nan], [1, 2], 1, "wrong"),
        ([[1.0, 2.0]], [1, 2], 1, "wrong"),
        ([1 + 1j], [1 - 1j], 0.1, "wrong"),
    ],
)
def test_verdicts(found: Any, expected: Any, tolerance: float, verdict: str) -> None:
    call = record.device.Call("x", lambda: (np.array(found), np.array(expected)), tolerance)
    answer = record.outcome(call)
    assert answer["verdict"] == verdict
    assert json.loads(json.dumps(answer)) == answer


def test_what_a_library_refuses_is_no_result() -> None:
    def run() -> tuple[Any, Any]:
        raise record.device.Refused("cublasX: 15")

    assert record.outcome(record.device.Call("x", run, 0)) == {"verdict": "refused", "why": "cublasX: 15"}


def test_a_card_that_answers_otherwise_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    here, close, far = (
        record.outcome(record.device.Call("x", lambda value=value: (np.array([value]), np.array([value])), 1e-6))
        for value in (1.0, 1.0 + 1e-6, 1.1)
    )
    for card, different in ((here, []), (close, []), (far, ["x"])):
        assert record.against({"device": "a card", "results": {"x": card}}, {"x": here}) == different
    assert "1 with the same bits" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["E4M3", "E5M2", "BF16", "F16"])
def test_narrow_types_hold_small_integers(name: str) -> None:
    kind = getattr(importlib.import_module("calls.narrow"), name)
    values = np.arange(-8, 9)
    assert (kind.decode(kind.encode(values)) == values).all()
