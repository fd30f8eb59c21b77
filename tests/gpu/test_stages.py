"""What tests/gpu/stages.py says; with card.c in the driver's place it says it here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.bench.driver import Timing
from tests.gpu import stages


def test_a_call_is_the_driver_round_trips_and_a_rest() -> None:
    def row(native_us: float, remoted_us: float, worker_us: float) -> stages.Row:
        return stages.Row([Timing(native_us, 100, native_us)], [Timing(remoted_us, 100, remoted_us)], [worker_us])

    table = stages.stages({stages.TRIP: row(0.5, 2, 1), "alloc_free_1m": row(74, 90, 85)})
    assert table[2:] == [
        f"| {stages.TRIP} | 0.50 (0.50) | 2.00 (2.00) | 4.00 | 1.00 | +0.50 | 1: 1.00 | 0.00 |",
        "| alloc_free_1m | 74.00 (74.00) | 90.00 (90.00) | 1.22 | 85.00 | +11.00 | 2: 2.00 | 3.00 |",
    ]


def test_both_tables_without_a_card(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(stages, "CIRCUMSTANCES", ("", stages.CIRCUMSTANCES[-1]))
    monkeypatch.setattr(sys, "argv", ["stages.py", "--card", "--rounds", "1", "--rows", "call_memory_info"])
    assert stages.main() == 0
    first = [line.split(" | ")[0].strip("| ") for line in capfd.readouterr().out.splitlines() if line.startswith("| ")]
    calls = ["call", stages.TRIP, "call_memory_info"]
    assert first == [*calls, "natively", "a program as it is", stages.CIRCUMSTANCES[-1]]


def test_each_row_is_measured_by_the_program() -> None:
    source = Path(stages.driver.__file__).with_name("driver.c").read_text()
    assert all(f'MEASURE("{name}"' in source for name in stages.ROWS)
