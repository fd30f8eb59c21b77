"""The text of the sanitizer's reports."""

from __future__ import annotations

from typing import Any

from vgpud.cli.sanitizer_report import Report, read_reports

INVALID: dict[str, Any] = {
    "kind": "invalid", "kernel": "_Z1kPi", "space": "global", "access": "write", "text": "st.global.u32",
    "place": "x.cu:3", "nbytes": 4, "address": 0x2000, "block": [1, 0, 0], "thread": [5, 0, 0],
}  # fmt: skip


def test_reports_are_found_in_the_log() -> None:
    """A truncated report is distinguished from vgpud's own log lines."""
    log = [
        "2026-11-28 19:00:00 info    vgpud is ready",
        'now warning worker says session=3 worker=7 line="sanitizer: {\\"kind\\":\\"leak\\",\\"nbytes\\":8}"',
        '2026-11-28 19:00:01 warning worker says session=3 worker=7 line="sanitizer: {\\"kind\\":\\"le"',
    ]
    reports, others, is_cut_short = read_reports(log)
    assert reports == [{"kind": "leak", "nbytes": 8, "session": 3}]
    assert others == log[:1]
    assert is_cut_short
    assert not read_reports(log[:2])[2]
    assert "The run was cut short: some errors may be missing here" in Report("memcheck", [], 1, is_whole=False).lines()
    assert "The run was cut short: some errors may be missing here" not in Report("memcheck", [], 1).lines()


def test_where_an_address_lies() -> None:
    near = INVALID | {"allocation": 0x1000, "allocation_nbytes": 0xFFF}
    lines = list(Report("memcheck", [near], 100).lines())
    assert lines[1:6] == [
        "Invalid __global__ write of size 4 bytes",
        "    at k(int*) in x.cu:3",
        "    by thread (5,0,0) in block (1,0,0)",
        "    Address 0x2000 is out of bounds",
        "    and is 2 bytes after the nearest allocation at 0x1000 of size 4095 bytes",
    ]
    freed = INVALID | {"freed": 0x1FF0, "freed_nbytes": 64}
    assert (
        "    and is 16 bytes inside a freed allocation at 0x1ff0 of size 64 bytes"
        in Report("memcheck", [freed], 100).lines()
    )


def test_what_is_not_printed_is_counted_by_kernel() -> None:
    """A kernel with many errors hides no other."""
    other = INVALID | {"kernel": "_Z5otherv"}
    only_counted = {"kind": "suppressed", "kernel": "_Z1kPi", "count": 7}
    report = Report("memcheck", [INVALID] * 5 + [only_counted, other], 2)
    lines = list(report.lines())
    assert report.error_count == 13
    assert [line for line in lines if line.startswith("    at")] == [
        "    at k(int*) in x.cu:3",
        "    at other() in x.cu:3",
    ]
    assert lines[-3:] == [
        "11 more errors in k(int*)", "Launches watched: 0", "ERROR SUMMARY: 13 errors (2 printed)"
    ]  # fmt: skip
    assert not any("more error" in line for line in Report("memcheck", [INVALID, other], 2).lines())


def test_races_of_two_accesses_are_one() -> None:
    race = INVALID | {"kind": "race", "hazard": "write-after-read", "before": "read", "before_place": "x.cu:2"}
    lines = list(Report("racecheck", [race, race | {"address": 0x3000}], 100).lines())
    assert lines[1:3] == [
        "Error: Race reported between Read access at k(int*) in x.cu:2",
        "    and Write access at k(int*) in x.cu:3 [2 hazards]",
    ]
    assert lines[-1] == "RACECHECK SUMMARY: 1 hazards displayed (1 errors, 0 warnings)"
