"""A worker without memory for an object's id says so: the client has done nothing wrong, and its session goes on."""

from __future__ import annotations

import ctypes

import pytest
from vgpud._gen.api import KINDS

from protocol.gen.load import load
from tests.protocol.records import (
    INVALID_CONTEXT,
    INVALID_HANDLE,
    Case,
    Dispatcher,
    compile_parts,
    fill,
    link,
    travelling,
)

OUT_OF_MEMORY = 2
FAR = 40000  # an id in a part of the tables in which no object has been
API = {f.name: f for f in load().functions}
MAKERS = [
    r for r in travelling() if any(m == "creates" for m, _ in r.meanings.values()) and not API[r.name].host_custom
]


@pytest.fixture(scope="module")
def dispatcher(tmp_path_factory: pytest.TempPathFactory) -> Dispatcher:
    folder = tmp_path_factory.mktemp("no_memory")
    return Dispatcher(link(compile_parts(load(), folder), folder / "dispatch.so"))


def execute(dispatcher: Dispatcher, case: Case, no_memory: bool) -> int:
    data = case.encode()
    dispatcher.lib.vgt_descriptors(1)
    ctypes.c_int.in_dll(dispatcher.lib, "vgt_no_memory").value = no_memory
    result = dispatcher.lib.vgt_execute(data, len(data))
    ctypes.c_int.in_dll(dispatcher.lib, "vgt_no_memory").value = False
    return int(result)


@pytest.mark.parametrize("record", MAKERS, ids=lambda record: record.name)
def test_no_memory_for_an_id(record, dispatcher) -> None:
    given = fill(record, dispatcher)
    name, kind = next((name, kind) for name, (meaning, kind) in record.meanings.items() if meaning == "creates")
    given["fields"][name] = FAR
    assert execute(dispatcher, Case(record, "", **given), no_memory=True) == OUT_OF_MEMORY
    assert not dispatcher.lib.vgt_is_live(KINDS[kind], FAR)
    ended = next((r for r in travelling() if ("destroys", kind) in r.meanings.values()), None)
    if ended:
        fields = {n: FAR for n, (meaning, _) in ended.meanings.items() if meaning == "destroys"}
        given = fill(ended, dispatcher)
        given["fields"] |= fields
        expected = INVALID_CONTEXT if kind == "CONTEXT" else INVALID_HANDLE
        assert execute(dispatcher, Case(ended, "", **given), no_memory=False) == expected
