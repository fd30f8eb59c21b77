"""Hostile records, generated from the description, for every function that travels. tests/mutation shows that each
check is tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.gen.load import Api, load
from tests.protocol.records import ROOT, Dispatcher, cases, compile_parts, link, travelling

RECORDS = travelling()


@pytest.fixture(scope="module")
def api() -> Api:
    return load()


@pytest.fixture(scope="module")
def dispatcher(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Dispatcher:
    folder = tmp_path_factory.mktemp("dispatch")
    return Dispatcher(link(compile_parts(api, folder), folder / "dispatch.so"))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_records_of(record, api, dispatcher) -> None:
    faults = [fault for case in cases(record, api, dispatcher) if (fault := case.fault(dispatcher))]
    assert faults == []


def test_no_guard_is_written_by_other_means() -> None:
    """Every violation in the generated file stands behind VGX_GUARD, so that none escapes the mutation check."""
    text = Path(ROOT / "build/gen/vgx_dispatch.c").read_text()
    assert text.count("VGX_GUARD(") > 150
    lines = [line for line in text.splitlines() if "vgx_violation(" in line and "VGX_GUARD(" not in line]
    assert lines == []
