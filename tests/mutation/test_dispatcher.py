"""Each guard of the generated dispatcher is needed: without it a record of tests/protocol gets a wrong answer. A guard
checks a number from the client before the number is used. In a separate process, one guard is removed, or one entry of
the table of operations is changed: a case that passed must then fail, or the process must crash.
"""

from __future__ import annotations

import re

import pytest

from protocol.gen.load import Api, load
from tests.mutation.mutant import noticed
from tests.protocol.records import ROOT, Dispatcher, cases, compile_parts, link, travelling

RECORDS = travelling()
SLICES = 8  # parts of all mutants, so that each test takes only seconds even on a busy machine
DAMAGES = ("fixed length", "context", "handle type", "null handle", "handle")


@pytest.fixture(scope="module")
def api() -> Api:
    return load()


@pytest.fixture(scope="module")
def dispatcher(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Dispatcher:
    folder = tmp_path_factory.mktemp("dispatch")
    return Dispatcher(link(compile_parts(api, folder), folder / "dispatch.so"))


def guards() -> list[tuple[str, str]]:
    """The function and the text of each guard, in the order in which they are numbered."""
    found, function = [], ""
    for line in (ROOT / "build/gen/vgx_dispatch.c").read_text().splitlines():
        if started := re.match(r"static CUresult dispatch_(\w+)", line):
            function = started[1]
        found += [(function, line.strip())] * line.count("VGX_GUARD(")
    return found


def fails(record, api: Api, dispatcher: Dispatcher) -> bool:
    return any(case.fault(dispatcher) for case in cases(record, api, dispatcher))


@pytest.mark.parametrize("slice_", range(SLICES))
def test_each_guard_of_the_dispatcher_is_needed(slice_, api, dispatcher) -> None:
    by_name = {record.name: record for record in RECORDS}
    survivors = []
    for number, (function, text) in list(enumerate(guards()))[slice_::SLICES]:

        def leave_out(number: int = number) -> bool:
            dispatcher.lib.vgt_set_mutant(number)
            return True

        if not noticed(leave_out, lambda name=function: fails(by_name[name], api, dispatcher)):
            survivors.append(f"{function}: {text}")
    assert not survivors, "\n".join(survivors)


@pytest.mark.parametrize("slice_", range(SLICES))
def test_each_entry_of_the_operations_is_needed(slice_, api, dispatcher) -> None:
    survivors = []
    for record in RECORDS[slice_::SLICES]:
        for how in DAMAGES:
            for index in range(4 if "handle" in how else 1):

                def damage(record=record, how=how, index=index) -> bool:
                    return bool(dispatcher.lib.vgt_damage(record.opcode, how.encode(), index))

                if noticed(damage, lambda record=record: fails(record, api, dispatcher)) is False:
                    survivors.append(f"{record.name}: {how} {index}")
    assert not survivors, "\n".join(survivors)


def test_the_check_itself_notices_a_survivor(api, dispatcher) -> None:
    record = next(record for record in RECORDS if record.parts)
    assert noticed(lambda: True, lambda: fails(record, api, dispatcher)) is False
