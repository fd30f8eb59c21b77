"""The files that libcuda writes for `vgpu sanitize`, and their text in reports."""

from __future__ import annotations

from pathlib import Path

from vgpud.cli.host_stack import read_stacks
from vgpud.cli.sanitizer_report import Report

STACKS = """stack 1 cuMemAlloc_v2
frame 10 _Z3addPi /opt/with space/program
frame 2f - /nowhere/libx.so
frame 7fff5 - -
python File "/a b/train.py", line 12 in <module>
stack 2 cuLaunchKernel
frame 40 main /opt/program
"""
NUMBER = 1 << 63 | 0xAB << 32


def test_reports_have_the_stacks_that_they_name(tmp_path: Path) -> None:
    (tmp_path / "ab").write_text(STACKS)
    (tmp_path / "cd").write_text("frame 1 lost x\nstack 1")  # cut short: a full disk
    stacks = read_stacks(tmp_path)
    assert stacks.keys() == {NUMBER | 1, NUMBER | 2}
    leak = {"kind": "leak", "address": 0x1000, "nbytes": 8, "allocated_by": NUMBER | 1}
    assert list(Report("memcheck", [leak], 9, stacks=stacks).lines())[1:8] == [
        "Leaked 8 bytes at 0x1000",
        "    Saved host backtrace up to driver entry point at allocation time",
        "        Host Frame: cuMemAlloc_v2",
        "        Host Frame: add(int*) [0x10] in program",
        "        Host Frame: [0x2f] in libx.so",
        "        Host Frame: [0x7fff5] in (unknown)",
        "        Python Frame: <module> in /a b/train.py:12",
    ]
    unknown = leak | {"allocated_by": NUMBER | 3}
    assert list(Report("memcheck", [unknown], 9, stacks=stacks).lines())[1:3] == ["Leaked 8 bytes at 0x1000", ""]
