"""When two outcomes count as equal, and what the report says when they do not."""

from __future__ import annotations

import math

import pytest

from tests.conformance.__main__ import accepted, report
from tests.conformance.outcome import Outcome, Verdict, compare

NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("base", "other", "verdict"),
    [
        (Outcome(("0",)), Outcome(("0",)), Verdict.SAME),
        (Outcome(("0",)), Outcome(("1",)), Verdict.DIFFERENT),
        (Outcome(("0",)), Outcome(("801",)), Verdict.NOT_OFFERED),
        (Outcome(("801",)), Outcome(("0",)), Verdict.DIFFERENT),
        (Outcome((100.0,), 0.01), Outcome((100.9,), 0.01), Verdict.SAME),
        (Outcome((100.0,), 0.01), Outcome((102.0,), 0.01), Verdict.DIFFERENT),
        (Outcome((1.0,)), Outcome((math.nextafter(1.0, 2),)), Verdict.DIFFERENT),
        (Outcome((math.nan, math.inf), 1.0), Outcome((math.nan, math.inf), 1.0), Verdict.SAME),
        (Outcome((1.0,), 1.0), Outcome((math.nan,), 1.0), Verdict.DIFFERENT),
        (Outcome((1.0, 2.0), 1.0), Outcome((1.0,), 1.0), Verdict.DIFFERENT),
        (Outcome((1.0,)), Outcome(error="it broke"), Verdict.DIFFERENT),
        (Outcome(error="it broke"), Outcome(error="it broke"), Verdict.DIFFERENT),
        (Outcome((1.0,)), Outcome(missing="no torch"), Verdict.NOT_RUN),
        (Outcome(missing="no torch"), Outcome(missing="no torch"), Verdict.NOT_RUN),
    ],
)
def test_compare(base: Outcome, other: Outcome, verdict: Verdict) -> None:
    assert compare(base, other) is verdict


def test_answers_that_follow_from_what_is_not_offered() -> None:
    base = Outcome(("0",))
    name = "call cuMemFree(p) #3"
    assert compare(base, Outcome(("1",)), accepted=accepted(name, base)) is Verdict.EXPECTED
    assert compare(base, Outcome(("2",)), accepted=accepted(name, base)) is Verdict.DIFFERENT
    assert accepted("call cuMemAlloc(&p,16) #1", base) == NONE


def test_the_report_names_what_differs_and_what_did_not_run() -> None:
    columns = {
        "native": {"a": Outcome((1.0,)), "b": Outcome((1.0,)), "c": Outcome(missing="No module named 'cupy'")},
        "remoted": {"a": Outcome((1.0,)), "b": Outcome((2.0,)), "c": Outcome(missing="No module named 'cupy'")},
    }
    text, is_well = report(columns, everything=False)
    assert not is_well
    assert "| b | 1 | 2 | different |" in text
    assert "| c | not run: No module named 'cupy' | not run: No module named 'cupy' | not run |" in text
    assert "| a |" not in text
    assert "native: 2 same, 1 not run" in text
    assert "remoted: 1 same, 1 not run, 1 different" in text
    assert "| a | 1 | 1 | same |" in report(columns, everything=True)[0]


def test_a_check_that_fails_everywhere_is_not_well() -> None:
    text, is_well = report(
        {"native": {"a": Outcome(error="x")}, "remoted": {"a": Outcome(error="x")}}, everything=False
    )
    assert not is_well
    assert "failed: x" in text


def test_what_native_cannot_run_is_judged_by_the_next_side() -> None:
    columns = {
        "native": {"a": Outcome(missing="no card")},
        "remoted": {"a": Outcome(("ok",))},
        "simulated": {"a": Outcome(("FAIL",))},
    }
    assert not report(columns, everything=False)[1]
