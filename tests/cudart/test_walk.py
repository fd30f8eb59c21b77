"""vgpu's runtimes behave as NVIDIA's runtimes of the same major do on the same driver."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cudart.runtimes import MAJORS, Major, compared

Run = Callable[..., CompletedProcess[str]]
WALK = Path(__file__).parent / "programs/walk.py"
STEPS_MIN = 120
each = pytest.mark.parametrize("major", MAJORS, ids=lambda major: str(major.number))


def walk(h100_run: Run, library: Path, major: Major) -> list[list[object]]:
    result = h100_run([sys.executable, WALK, library, major.number])
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
    steps: list[list[object]] = [json.loads(line) for line in result.stdout.splitlines()]
    assert steps[-1] == ["end"]
    assert len(steps) > STEPS_MIN
    return steps


@each
def test_walk_alone(h100_run: Run, major: Major) -> None:
    """What can be checked without NVIDIA's library: copied data arrives, and wrong calls return errors."""
    steps = {str(step[0]): step[1:] for step in walk(h100_run, major.ours, major)}
    assert steps["count"] == [0, 1]
    assert steps["copy"] == [0, 0, True]
    assert steps["launch"] == [0, 0]
    assert steps["its data"] == [True]
    assert steps["bumped again"] == [0, 72]
    assert steps["counter after reset"] == [0, 41]
    assert steps["attribute of no device"] == [101, 101]
    assert steps["malloc too much"] == [2, 0x77, 2]
    assert steps["async data"] == [True]
    assert steps["copy kinds"][0] == [21, 21, 21]
    assert steps["called"][1] == [["function", 5], ["callback", True, 0, 6]]


@pytest.mark.client
@pytest.mark.timeout(700)
@each
def test_walk_equals_nvidias(h100_run: Run, major: Major) -> None:
    ours, theirs = walk(h100_run, major.ours, major), walk(h100_run, compared(major), major)
    assert [step for step in ours if step not in theirs] == []
    assert ours == theirs


@pytest.mark.gpu
@each
def test_walk_equals_nvidias_on_the_real_driver(native_run: Run, major: Major) -> None:
    """Both runtimes run over NVIDIA's own libcuda, so that only the runtimes are compared."""
    answers = []
    for library in (major.ours, compared(major)):
        result = native_run([sys.executable, WALK, library, major.number])
        assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
        answers.append(result.stdout.splitlines())
    assert len(answers[0]) > STEPS_MIN
    assert answers[0] == answers[1]
