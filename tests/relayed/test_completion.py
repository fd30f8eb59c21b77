"""Waits and staged copies over the cuda backend: the simulator's tests, run through the relay."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.relayed.conftest import Relay
from tests.shim import test_completion, test_staged_copies
from tests.shim.client import PRELUDE
from tests.shim.spinning import TOOLS
from tests.shim.test_completion import calls_after_flags

# Tests whose outcome differs when the driver is itself vgpu's library (see conftest.py). Its host functions run one
# after the other, so a blocked one delays the flags of other streams. It reports an error of a queued call at the next
# call that waits, so the flag behind the failed call may be written first.
BEYOND_THE_RELAY = {
    "test_an_event_of_another_context_is_not_complete_without_asking",
    "test_a_wait_for_one_stream_is_none_for_another",
    "test_a_copy_behind_a_held_stream_waits_and_delays_nobody",
    "test_a_copy_is_not_held_up_by_a_small_one_of_a_blocked_stream",
}


@pytest.fixture
def simulate_spinning(shared_relay: Relay) -> Callable[[str], str]:
    def run(program: str) -> str:
        return shared_relay.python(PRELUDE + TOOLS + textwrap.dedent(program), VGPU_SPIN_US="50")

    return run


@pytest.fixture
def simulate_traced(shared_relay: Relay, tmp_path: Path) -> Callable[[str], list[tuple[str, str]]]:
    def traced(program: str) -> list[tuple[str, str]]:
        log = tmp_path / "log"
        text = PRELUDE + TOOLS + textwrap.dedent(program)
        shared_relay.python(text, VGPU_SPIN_US="50", VGPU_LOG="trace", VGPU_LOG_FILE=str(log))
        return calls_after_flags(log)

    return traced


TESTS = vars(test_completion) | vars(test_staged_copies)
ASKED = {name: test for name, test in TESTS.items() if name.startswith("test_")}
globals().update({name: test for name, test in ASKED.items() if name not in BEYOND_THE_RELAY})
