"""Hostile records, by the description, for every function that travels; and that each guard is needed.

A guard is what stands between a client's number and its use. The mutation check leaves out one at a time, or makes the
table of operations wrong in one place, in a process of its own: a case that passed must then fail, or the process die.
"""

from __future__ import annotations

import faulthandler
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.gen.load import Api, load
from tests.protocol.records import ROOT, Dispatcher, cases, travelling

RECORDS = travelling()
DAMAGES = ("fixed length", "context", "handle type", "null handle", "handle")
SURVIVED, NOTICED = 0, 1


@pytest.fixture(scope="module")
def api() -> Api:
    return load()


@pytest.fixture(scope="module")
def dispatcher(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Dispatcher:
    return Dispatcher(api, tmp_path_factory.mktemp("dispatch"))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_records_of(record, api, dispatcher) -> None:
    faults = [fault for case in cases(record, api, dispatcher) if (fault := case.fault(dispatcher))]
    assert faults == []


def guards() -> list[tuple[str, str]]:
    """The function and the text of each guard, in the order in which they are numbered."""
    found, function = [], ""
    for line in (ROOT / "build/gen/vgx_dispatch.c").read_text().splitlines():
        if started := re.match(r"static CUresult dispatch_(\w+)", line):
            function = started[1]
        found += [(function, line.strip())] * line.count("VGX_GUARD(")
    return found


def noticed(change: Callable[[], bool], run: Callable[[], bool]) -> bool | None:
    """Whether a change is noticed, by a case that fails or by a death; None: it changes nothing."""
    child = os.fork()
    if child == 0:
        faulthandler.disable()  # a death is what is looked for
        os._exit(2 if not change() else NOTICED if run() else SURVIVED)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 2:
        return None
    return not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == SURVIVED)


def fails(record, api: Api, dispatcher: Dispatcher) -> bool:
    return any(case.fault(dispatcher) for case in cases(record, api, dispatcher))


def test_each_guard_of_the_dispatcher_is_needed(api, dispatcher) -> None:
    by_name = {record.name: record for record in RECORDS}
    survivors = []
    for number, (function, text) in enumerate(guards()):

        def leave_out(number: int = number) -> bool:
            dispatcher.lib.vgt_set_mutant(number)
            return True

        if not noticed(leave_out, lambda name=function: fails(by_name[name], api, dispatcher)):
            survivors.append(f"{function}: {text}")
    assert not survivors, "\n".join(survivors)


def test_each_entry_of_the_operations_is_needed(api, dispatcher) -> None:
    survivors = []
    for record in RECORDS:
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


def test_no_guard_is_written_by_other_means() -> None:
    """Every violation in the generated file stands behind VGX_GUARD, so that none escapes the check."""
    text = Path(ROOT / "build/gen/vgx_dispatch.c").read_text()
    assert text.count("VGX_GUARD(") > 150
    lines = [line for line in text.splitlines() if "vgx_violation(" in line and "VGX_GUARD(" not in line]
    assert lines == []
