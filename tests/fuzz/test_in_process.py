"""Short runs of `make fuzz-records`, `make fuzz-floor` and `make faults`, which run longer by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import evidence
from tests.fuzz.in_process import FAULTS, build, faults, measure, run
from tests.fuzz.lines import read_floor

BATCHES = -20  # negative: 20 batches of 100 sessions, not seconds

pytestmark = pytest.mark.timeout(900)  # each test compiles the executor and the simulator for itself


def test_the_search_executes_what_it_must_and_no_session_ends_by_a_signal() -> None:
    """On a busy machine sessions end before all their records are executed, so that it takes more searches."""
    for found in measure(BATCHES, seed=1, searches=6):
        lacking = {name: found[name] for name, percent in read_floor().items() if found[name] < percent}
        if not lacking:
            break
    assert not lacking


def test_a_call_that_fails_ends_a_session_at_worst() -> None:
    tried, counted = faults(streams=2, most=5)
    assert tried > 10
    assert counted > 0


def test_a_session_that_ends_by_a_signal_leaves_its_stacks_and_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = build("faults", sanitize="address,undefined", more=FAULTS)
    monkeypatch.setenv("VGT_CRASH", "2")
    status, counts = run(program, -1, 5, out=tmp_path)
    assert status != 0
    assert counts["sessions"] == 1
    [crash] = tmp_path.glob("*.bin")
    text = evidence.report_path(crash).read_text()
    assert "signal 11 code 1 address 0x1000 " in text
    assert "seed 5 session 2 of its process" in text
    own, others = text.split("\nthreads ")
    assert "vgt_evidence_crash at vgt_fuzz_evidence.c" in own
    assert "vgt_evidence_test at vgt_fuzz_evidence.c" in others  # the thread that waits for it
    monkeypatch.delenv("VGT_CRASH")
    status, counts = run(program, 0, 5, str(crash), out=tmp_path)
    assert status == 0
    assert counts["sessions"] == 2
