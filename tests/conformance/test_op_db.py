"""The report on two native runs and a remoted run of PyTorch's operators; the worker processes, with a stand-in for
torch, as the operators need a card."""

import os
import re
from pathlib import Path

import pytest
from vgpud.bench.side import Side

from tests.conformance import op_db
from tests.conformance.op_db import outcomes, report

# torch with three operators: one whose samples come from a set of strings, one whose result depends on unset memory,
# one that is wrong on the side whose environment says so.
STAND_IN = """
import collections, os, numpy as np

class Tensor:
    layout, requires_grad, freed = "strided", False, int(os.environ.get("WRONG", 0))

    def __init__(self, *values):
        self.values = np.array(values, np.uint8)
        self.dtype, self.shape = "uint8", self.values.shape

    def __getattr__(self, name):
        return lambda *_: self.values.size if name == "numel" else self.values if name == "numpy" else self

class Dtype:
    is_floating_point = False

class Operator:
    variant_test_name, supports_autograd = "", False

    def __init__(self, name, apply, samples):
        self.name, self.apply, self.samples = name, apply, samples

    def __call__(self, value):
        return Tensor(self.apply(value))

    def supported_dtypes(self, device):
        return {int64}

    def sample_inputs(self, device, dtype, requires_grad):
        return [collections.namedtuple("Sample", "input args kwargs")(each, (), {}) for each in self.samples()]

float32, bfloat16, complex64, int64, uint8, strided = *(Dtype() for _ in range(5)), "strided"
use_deterministic_algorithms = manual_seed = lambda _: None

def full(size, value, **_):
    Tensor.freed = value

op_db = [
    Operator("sets", lambda value: sum(map(ord, value)), lambda: {f"sample {i}" for i in range(5)}),
    Operator("unset", lambda value: Tensor.freed, lambda: (0, 1)),
    Operator("plain", lambda value: 7 + int(os.environ.get("WRONG", 0)), lambda: (0, 1)),
]
"""
TREE = "def tree_flatten(value): return ([value], None)"
NATIVE = {"add float32 0": "=aa", "empty float32 0": "=bb", "sub int64 0": "TypeError"}


def test_what_differs_natively_is_unstable_and_not_judged(capsys) -> None:
    again = NATIVE | {"empty float32 0": "=cc"}
    assert report((NATIVE, []), (again, []), (NATIVE | {"empty float32 0": "=dd"}, [])) == 0
    said = capsys.readouterr().out
    assert "unstable natively: empty:float32:0" in said
    assert "3 results natively, 2 always the same (1 computed" in said


def test_a_stable_result_that_differs_is_a_failure(capsys) -> None:
    assert report((NATIVE, []), (NATIVE, []), (NATIVE | {"add float32 0": "=ab"}, [])) == 1
    assert "different: add float32 0: natively =aa, remoted =ab" in capsys.readouterr().out


@pytest.fixture
def stand_in(tmp_path: Path) -> dict[str, str]:
    """An environment in which `import torch` finds the stand-in."""
    for name, text in {
        "torch": STAND_IN,
        "torch.utils": "",
        "torch.utils._pytree": TREE,
        "torch.testing": "",
        "torch.testing._internal": "",
        "torch.testing._internal.common_methods_invocations": "from torch import op_db",
    }.items():
        folder = tmp_path / name.replace(".", "/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text(text)
    return {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}", "PYTHONHASHSEED": "random"}


def test_samples_from_a_set_are_the_same_in_each_process(stand_in: dict[str, str]) -> None:
    found = [outcomes(stand_in, 2, 5, 60) for _ in range(2)]
    assert found[0] == found[1]
    assert len(found[0][0]) == 9
    assert not found[0][1]


class Host:
    """In vgpud's place: the remoted side has another environment."""

    def __init__(self, *_: object) -> None:
        self.side = Side("shm", {"WRONG": "200"})

    def __enter__(self) -> "Host":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_what_differs_is_computed_again(
    stand_in: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vgpud.bench.side.Host", Host)
    monkeypatch.setattr("sys.argv", ["op_db", "--parts", "1", "--limit-s", "60"])
    for name in ("PYTHONPATH", "PYTHONHASHSEED"):
        monkeypatch.setenv(name, stand_in[name])
    assert op_db.main() == 1
    said = capsys.readouterr().out
    assert "unstable natively: unset:int64:0 unset:int64:1\n" in said
    assert re.findall("different: (plain int64 .): natively =.*, remoted (=.*); again (=.*)", said) == [
        (f"plain int64 {i}", wrong, wrong) for i in range(2) for wrong in [re.findall("remoted (=[0-9a-f]*)", said)[i]]
    ]
    assert "9 results natively, 7 always the same" in said


def test_what_differs_natively_when_it_is_repeated_is_unstable(capsys) -> None:
    remoted = NATIVE | {"add float32 0": "=ab"}
    seen = {"add float32 0": {"=aa", "=ac"}}
    assert report((NATIVE, []), (NATIVE, []), (remoted, []), seen, {"add float32 0": {"=ab"}}) == 0
    assert "unstable natively: add:float32:0" in capsys.readouterr().out


@pytest.mark.parametrize("natively", [{"=aa"}, {"=aa", "OutOfMemoryError"}, set()])
def test_what_never_differs_natively_stays_a_failure(natively: set[str], capsys) -> None:
    remoted = NATIVE | {"add float32 0": "=ab"}
    seen = {"add float32 0": natively}
    assert report((NATIVE, []), (NATIVE, []), (remoted, []), seen, {"add float32 0": {"=aa", "=ab"}}) == 1
    assert "different: add float32 0: natively =aa, remoted =ab; again =aa =ab" in capsys.readouterr().out


def test_results_that_the_remoted_side_lacks_are_a_failure(capsys) -> None:
    assert report((NATIVE, []), (NATIVE, []), ({"add float32 0": "=aa"}, ["part 0: exit 1: killed"])) == 1
    said = capsys.readouterr().out
    assert "not reached remoted: sub int64 0" in said
    assert "remoted: part 0: exit 1: killed" in said


def test_nothing_compared_is_a_failure() -> None:
    assert report(({}, []), ({}, []), ({}, [])) == 1
