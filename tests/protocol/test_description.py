"""The description is complete and used: little is written by hand beside it, and none of its entries is unused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from protocol.gen.halves import halves
from protocol.gen.load import Api, load

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "build/gen"


@pytest.fixture(scope="module")
def api() -> Api:
    return load()


def sources(*folders: str) -> str:
    return "\n".join(path.read_text() for folder in folders for path in sorted((ROOT / folder).rglob("*.[ch]")))


def test_at_most_a_third_of_what_travels_has_a_half_by_hand(api) -> None:
    """`python -m protocol.gen --halves` lists them."""
    by_hand = {half.function for half in halves(api)}
    assert 3 * len(by_hand) <= len(api.travelling())


def test_each_half_by_hand_is_a_function_of_its_name(api) -> None:
    """The list cannot count the lines of a half that a macro makes."""
    assert [half.function for half in halves(api) if not half.file] == []


def test_each_opcode_has_a_sender(api) -> None:
    text = (GENERATED / "vgs_forward.c").read_text() + sources("shim")
    sent = set(re.findall(r"\bvgs_(?:send|begin)_(\w+)\b", text)) | set(re.findall(r"\bVGW_OP_(\w+)\b", text))
    assert [f.name for f in api.travelling() if f.name not in sent] == []


def test_each_member_of_the_backend_is_called(api) -> None:
    text = (GENERATED / "vgx_dispatch.c").read_text() + sources("daemon/executor")
    called = set(re.findall(r"->(cu\w+)\b", text))
    assert [f.name for f in api.backend_members() if f.name not in called] == []


def test_each_function_of_the_simulators_driver_is_called(api) -> None:
    """Calls go through the backend's table; only functions that just tests call are declared by hand."""
    device = "daemon/vgpusim/device"
    declared = "\n".join(path.read_text() for path in (ROOT / device).glob("*.h"))
    of_tests = set(re.findall(r"^CUresult vgx_sim_(cu\w+)\(", declared, re.M))
    defined = set(re.findall(r"^CUresult vgx_sim_(cu\w+)\(", sources(device), re.M))
    assert defined - {f.name for f in api.backend_members() if f.simulator} == of_tests
    tests = "\n".join(path.read_text() for path in (ROOT / "tests/vgpusim").rglob("*.py"))
    assert [name for name in sorted(of_tests) if not re.search(rf"\b{name}\b", tests)] == []
