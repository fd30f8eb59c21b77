"""PTX that does not compile or link, and bytes that are not an image: which call fails, with what; what is logged."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.conftest import ROOT

Run = Callable[..., CompletedProcess[str]]
PROGRAM = ROOT / "tests/gpu/jit_errors.py"

ORACLE = ROOT / "tests/shim/oracle/jit_errors.jsonl"  # an H200 under 580.159.04

LATER = "the simulator does not check operand types"
DIFFERENT = {  # results that differ from the card's, with the reason
    ("load", "wrong type"): LATER,
    ("link", "wrong type"): LATER,
    ("load", "instruction of a later target"): "the simulator has every instruction of the device",
    ("link", "instruction of a later target"): "the simulator has every instruction of the device",
    ("load", "version newer than the driver"): "a newer PTX is refused only if it cannot be read",
    ("link", "version newer than the driver"): "a newer PTX is refused only if it cannot be read",
    ("load", "fatbin, truncated"): "200 instead of 999",
    ("link fatbinary", "fatbin, truncated"): "200 instead of 999",
    ("link fatbinary", "fatbin without entries"): "refused when it is added",
    ("link cubin", "host program"): "200 instead of 209",
}


def results(answer: dict[str, Any]) -> list[int]:
    """The results of the calls that load or link, up to the first error: calls after a failed link are not compared."""
    codes: list[int] = []
    for call, code in answer["calls"]:
        # A card reports the errors of these later: see test_the_results_are_a_cards.
        if not call.startswith("cuLibrary") and not call.startswith("cuKernel"):
            codes.append(code)
            if code and call.startswith("cuLink"):
                break
    return codes


LOADS = {  # the results of cuModuleLoadData, cuModuleLoadDataEx and cuLibraryLoadData, and words of the log
    "unknown instruction": (218, "line 7: unknown instruction `bogus`"),
    "unknown register": (218, "line 7: `%zz` is not declared"),
    "unclosed brace": (218, "unbalanced braces"),
    "unknown target": (218, "sm_999"),
    "unresolved function": (218, "Unresolved extern function 'absent'"),
    "unresolved function, declared only": (0, ""),
    "unresolved function, called by dead code": (218, "Unresolved extern function 'absent'"),
    "unresolved variable": (0, ""),
    "text": (200, "neither PTX (no .version at the start), nor a fatbin, nor an ELF image"),
    "empty": (200, "what begins with the bytes 00 00 00 00 is not an image"),
    "host program": (200, "an ELF file without tables"),
    "fatbin, truncated": (200, "fatbin: "),
    "fatbin without entries": (209, "rebuild with -gencode"),
}
LINKS = {  # the results of cuLinkAddData (or File) for each input and of cuLinkComplete
    "unknown instruction": ([218, 1], "line 7: unknown instruction `bogus`"),
    "missing semicolon": ([218, 1], "line 8: expected `;`"),
    "unknown target": ([218, 1], "sm_999"),
    "unresolved function": ([0, 999], "Undefined reference to 'absent'"),
    "unresolved function, declared only": ([0, 0], ""),
    "unresolved function, called by dead code": ([0, 0], ""),
    "unresolved variable": ([0, 999], "Undefined reference to 'nowhere'"),
    "unresolved variable, declared only": ([0, 999], "Undefined reference to 'nowhere'"),
    "both unresolved": ([0, 999], "'nowhere'; Undefined reference to 'absent'"),
    "resolved by another input": ([0, 0, 0], ""),
    "defined twice": ([0, 0, 999], "k is defined in two texts"),
    "function defined twice": ([0, 0, 999], "absent is defined in two texts"),
}


@pytest.fixture(scope="module")
def answers(vgpu_run: Run) -> dict[tuple[str, str], dict[str, Any]]:
    done = vgpu_run([sys.executable, PROGRAM], env={"VGPU_LOG": "error"})
    assert done.returncode == 0, done.stderr
    found: dict[tuple[str, str], dict[str, Any]] = {("", "stderr"): {"text": done.stderr}}
    for line in done.stdout.splitlines():
        answer = json.loads(line)
        kind = next(iter(answer))
        found[kind, str(answer[kind])] = answer
    return found


def test_the_results_are_a_cards(answers: dict[tuple[str, str], dict[str, Any]]) -> None:
    """The exception is cuLibraryLoadData: it returns 218 at once, where a card returns it from cuLibraryGetKernel."""
    different = {}
    for line in ORACLE.read_text().splitlines()[1:-1]:
        theirs = json.loads(line)
        kind = next(iter(theirs))
        key = kind, theirs[kind]
        if kind not in ("link object", "link library"):
            different[key] = (results(answers[key]), results(theirs))
    different = {key: pair for key, pair in different.items() if pair[0] != pair[1]}
    unresolved = {("link", name) for name in LINKS if LINKS[name][0] == [0, 999]}
    for key in unresolved:  # after cuLinkAddData a card links, with an error in the log; cuLinkAddFile returns 999
        assert different.pop(key) == ([0, 0, 999], [0, 0, 0, 0, 0])
    twice = {("link", name) for name in ("defined twice", "function defined twice", "two unresolved")}
    for key in twice:  # the card returns the error when the second input is added
        assert different.pop(key) == ([0, 0, 0, 999], [0, 0, 999])
    assert set(different) <= set(DIFFERENT), different


@pytest.mark.parametrize("name", LOADS)
def test_gr4_a_load_says_why(answers: dict[tuple[str, str], dict[str, Any]], name: str) -> None:
    result, words = LOADS[name]
    answer = answers["load", name]
    calls = [code for call, code in answer["calls"] if "Load" in call]
    assert calls == [result] * 3
    for log in (answer["module"], answer["library"]):
        assert words in log["error"]
        assert bool(log["error"]) == bool(result)
        assert log["error_nbytes"] == len(log["error"])
    if result == 200:
        assert ": pass PTX, a fatbin or a cubin, whole and as nvcc wrote it" in answer["module"]["error"]
    assert not result or words in answers["", "stderr"]["text"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [*(("link", name) for name in LINKS), ("link file", "unknown instruction"), ("link file", "unresolved function")],
)
def test_gr4_a_link_says_why(answers: dict[tuple[str, str], dict[str, Any]], kind: str, name: str) -> None:
    results, words = LINKS[name]
    answer = answers[kind, name]
    calls = [code for call, code in answer["calls"] if "LinkAdd" in call or "LinkComplete" in call]
    assert calls == results
    log = answer["after_add"] if any(results[:-1]) else answer["after_complete"]
    assert words in log["error"]
    if any(results):
        assert log["error_nbytes"] == len(log["error"]) > 0
        assert words in answers["", "stderr"]["text"]
    else:
        assert dict(answer["calls"])["cuModuleLoadData"] == 0


def test_an_input_that_is_not_what_it_is_added_as_is_named(answers: dict[tuple[str, str], dict[str, Any]]) -> None:
    for kind, what in (("cubin", "a cubin (ELF)"), ("fatbinary", "a fatbin")):
        answer = answers[f"link {kind}", "text"]
        assert answer["calls"][1] == ["cuLinkAddData", 200]
        assert answer["after_add"]["error"].endswith(f"it was added as, but is not, {what}")
    for kind in ("object", "library"):
        answer = answers[f"link {kind}", "text"]
        assert answer["calls"][1] == ["cuLinkAddData", 801]
        assert "objects, libraries and LTO-IR are not supported" in answer["after_add"]["error"]


def test_an_invalid_image_is_told_by_default(vgpu_run: Run) -> None:
    done = vgpu_run([sys.executable, PROGRAM])
    lines = re.findall(r"^vgpu\[\d+\]: (.*)$", done.stderr, re.MULTILINE)
    assert any("cannot be loaded (200)" in line for line in lines)
    assert not re.search("vgpu.*cannot", vgpu_run([sys.executable, PROGRAM], env={"VGPU_LOG": "off"}).stderr)
