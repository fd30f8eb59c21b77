"""Racecheck's notes of launches that overlap."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path


def test_a_module_may_go_while_another_launch_runs(library_path: Path) -> None:
    """In a process of its own, which ends if what is gone is read."""
    script = f"import ctypes; assert ctypes.CDLL({str(library_path)!r}).vgt_race_of_unloaded() == 0"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_spans_find_what_is_found_without_them(library_path: Path) -> None:
    """Random accesses of rows and stripes, by a few warps of a few blocks."""
    library = ctypes.CDLL(str(library_path))
    races = ctypes.c_uint32(0)
    assert library.vgt_race_compare_spans(2000, ctypes.byref(races)) == 0
    assert races.value > 10000


def test_spans_tell_launches_that_overlap_apart(library_path: Path) -> None:
    """What several launches access in turn is no race."""
    assert ctypes.CDLL(str(library_path)).vgt_race_of_overlapping_launches(5000) == 0


def test_several_threads_report_what_one_reports(library_path: Path) -> None:
    """In the same order. Random blocks of random launches run ahead of their turn, to the end of many (issue 16)."""
    reports, ahead = ctypes.c_uint32(0), ctypes.c_uint32(0)
    library = ctypes.CDLL(str(library_path))
    assert library.vgt_race_compare_threads(0, 40, ctypes.byref(reports), ctypes.byref(ahead)) == 0
    assert reports.value > 2000
    assert ahead.value > 0
