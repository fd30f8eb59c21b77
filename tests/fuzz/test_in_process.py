"""Short runs of `make fuzz-records`, `make fuzz-floor` and `make faults`, which run longer by hand."""

from __future__ import annotations

import pytest

from tests.fuzz.in_process import faults, measure, read_floor

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
