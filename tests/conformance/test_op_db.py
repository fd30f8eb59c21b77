"""The report on two native runs and a remoted run of PyTorch's operators; the runs themselves need a card."""

from tests.conformance.op_db import report

NATIVE = {"add float32 0": "=aa", "empty float32 0": "=bb", "sub int64 0": "TypeError"}


def test_what_differs_natively_is_unstable_and_not_judged(capsys) -> None:
    again = NATIVE | {"empty float32 0": "=cc"}
    assert report((NATIVE, []), (again, []), (NATIVE | {"empty float32 0": "=dd"}, [])) == 0
    said = capsys.readouterr().out
    assert "unstable natively: empty:float32:0" in said
    assert "3 results natively, 2 the same twice (1 computed" in said


def test_a_stable_result_that_differs_is_a_failure(capsys) -> None:
    assert report((NATIVE, []), (NATIVE, []), (NATIVE | {"add float32 0": "=ab"}, [])) == 1
    assert "different: add float32 0: natively =aa, remoted =ab" in capsys.readouterr().out


def test_results_that_the_remoted_side_lacks_are_a_failure(capsys) -> None:
    assert report((NATIVE, []), (NATIVE, []), ({"add float32 0": "=aa"}, ["part 0: exit 1: killed"])) == 1
    said = capsys.readouterr().out
    assert "not reached remoted: sub int64 0" in said
    assert "remoted: part 0: exit 1: killed" in said


def test_nothing_compared_is_a_failure() -> None:
    assert report(({}, []), ({}, []), ({}, [])) == 1
