"""The counts of tests/gpu/samples.py, also when its time is over."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.gpu import samples


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> samples.Comparison:
    """Four samples: right, wrong remoted, one that does not build, and one during which the program is interrupted."""
    names = ("right", "wrong", "unbuilt", "interrupting")
    sides = [samples.Side("native", {}), samples.Side("remoted", {})]
    made = samples.Comparison(
        "nvcc", tmp_path, {name: tmp_path / name for name in names}, tmp_path, sides, 1, time.monotonic() + 60
    )

    def build(_nvcc: str, _checkout: Path, folder: Path, out: Path) -> Path | None:
        return None if folder.name == "unbuilt" else out / folder.name

    def run(program: Path, _folder: Path, side: samples.Side, _limit_s: float) -> tuple[str, str]:
        if program.name == "interrupting":
            made.is_interrupted = True  # as run() does
        return ("1", "no") if program.name == "wrong" and side.name == "remoted" else ("0", "")

    monkeypatch.setattr(samples, "build", build)
    monkeypatch.setattr(samples, "run", run)
    return made


def test_counts_are_of_what_was_reached(both: samples.Comparison, capsys: pytest.CaptureFixture[str]) -> None:
    for sample in ("right", "wrong", "unbuilt", "interrupting", "right"):
        both.judge(sample)
    assert capsys.readouterr().out == "| wrong | 0 | 1 no |\n"
    assert both.summary() == (
        "4 samples, 2 compile; end with 0 natively 2, remoted 1; 1 natively alone; 2 not reached\n"
        "do not compile: unbuilt\nunexpected: wrong\nnot reached: interrupting right"
    )


def test_what_fails_remoted_for_a_known_reason_is_expected(
    both: samples.Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "KNOWN", {"wrong": "why", "interrupting": "not reached"})
    for sample in ("right", "wrong", "interrupting"):
        both.judge(sample)
    assert not both.unexpected()
    assert "expected: wrong: why" in both.summary()


def test_a_known_sample_that_is_right_is_unexpected(both: samples.Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "KNOWN", {"right": "why"})
    both.judge("right")
    assert both.unexpected() == {"right"}


def test_an_interrupted_run_ends_and_has_counts(both: samples.Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: samples.Comparison, sample: str) -> None:
        if sample == "right":
            self.outcomes[sample] = "0", "0"
        elif self.has_time():
            raise KeyboardInterrupt

    monkeypatch.setattr(samples.Comparison, "judge", interrupt)
    both.run()
    assert both.summary().startswith("4 samples, 1 compile; end with 0 natively 1, remoted 1; 0 natively alone")
