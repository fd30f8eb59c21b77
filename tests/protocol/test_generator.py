"""The specification loads, covers what a 580 driver exports, and wrong entries raise errors that name them."""

from pathlib import Path

import pytest

from protocol.gen import dsl, emit_guest, emit_python, emit_records
from protocol.gen.load import IDS_LOCK, load
from protocol.gen.model import Function, Need, Role, SpecError, Travel

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def api():
    return load()


def test_every_name_of_the_driver_is_exported(api) -> None:
    names = set((ROOT / "protocol/data/libcuda-580-exports.txt").read_text().split())
    assert names <= set(api.exports)
    exports = emit_guest.emit_exports(api)
    assert all(f"CUresult {name}(" in exports for name in names)


def test_proc_table_names_only_exports(api) -> None:
    assert {s for e in api.procs for _, s in e.steps if s} <= set(api.exports)


def test_opcodes_are_those_of_the_lock_and_unique(api) -> None:
    lock = {name: int(code) for code, name in (line.split() for line in IDS_LOCK.read_text().splitlines())}
    assert len(set(lock.values())) == len(lock)
    assert all(f.opcode == lock[f.name] for f in api.travelling())


def test_records_fit_a_record(api) -> None:
    """Every cap leaves room for header and fixed part, or the reply buffer would overflow."""
    for f in api.travelling():
        sizes = {Role.HANDLES_IN: 4, Role.HANDLES_OUT: 4, Role.ARRAY_IN: 64, Role.ARRAY_OUT: 64}
        assert sum(p.cap * sizes.get(p.role, 1) for p in f.sent) < (4 << 20) - 65536, f.name


def test_fixed_fields_are_widest_first(api) -> None:
    for f in api.travelling():
        widths = [8 if c == "uint64_t" else 4 for c, _ in emit_records.request_fields(f) if not c.startswith("CU")]
        assert widths == sorted(widths, reverse=True), f.name


@pytest.mark.parametrize(
    ("args", "travel", "complaint"),
    [
        ([dsl.val("a", dsl.U32), dsl.val("a", dsl.U32)], Travel.WAITING, "two parameters of one name"),
        ([dsl.ptr("p")], Travel.WAITING, "cannot travel"),
        ([dsl.out("p", dsl.U32)], Travel.QUEUED, "no results"),
        ([dsl.bytes_in("p", "n")], Travel.WAITING, "needs size="),
    ],
)
def test_wrong_entries_are_refused(args, travel, complaint) -> None:
    with pytest.raises(SpecError, match=f"cuWrong: .*{complaint}"):
        Function("cuWrong", args, travel, Need.INIT, "A doc.").check()


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"wire": [dsl.val("n", dsl.U32)]}, "what the driver is given"),
        ({"wire": [dsl.val("n", dsl.U32)], "given": ("n",)}, "nothing says what is sent as n"),
        ({"forms": ("cuWrong2",)}, "only what has a stream"),
        ({"worker_checks": ("check(s)",), "host_custom": True}, "a worker's half by hand"),
    ],
)
def test_words_that_do_not_fit_each_other_are_refused(said, complaint) -> None:
    args = [dsl.ptr("p", "const void *")] if "wire" in said else []
    with pytest.raises(SpecError, match=f"cuWrong: .*{complaint}"):
        Function("cuWrong", args, Travel.WAITING, Need.INIT, "A doc.", **said).check()


def test_python_has_the_flags_and_the_header_of_the_c_code() -> None:
    wire = (ROOT / "protocol/c/vgw_wire.h").read_text()
    assert {'HEADER = Struct("<IHHII")\n', "WANT_REPLY = 1\n", "HAS_FD = 2\n"} < set(emit_python.header(wire))
    with pytest.raises(SpecError, match="not found"):
        emit_python.header(wire.replace("VGW_WANT_REPLY", "VGW_REPLY"))
