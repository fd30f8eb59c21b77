"""Kernels whose CTAs wait for each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.sim.harness import run

KERNELS = Path(__file__).parent / "kernels"


@pytest.fixture(params=["sm75", "sm90"])
def text(request: pytest.FixtureRequest) -> str:
    return (KERNELS / f"grid_{request.param}.ptx").read_text()


def rotated(a: np.ndarray, block: int, rounds: int) -> np.ndarray:
    for number in range(rounds):
        seen = np.roll(a, -block).reshape(-1, block)
        a = (seen + seen[:, ::-1] * np.uint32(3) + np.uint32(number)).ravel()
    return a


@pytest.mark.parametrize(("grid", "block"), [(1, 32), (7, 64), (5, 100), ((3, 2, 2), (8, 4, 2)), (200, 33)], ids=str)
def test_grid_barriers(text: str, grid: int | tuple[int, int, int], block: int | tuple[int, int, int]) -> None:
    threads = int(np.prod(block))
    count, rounds = int(np.prod(grid)) * threads, 5
    a = np.random.default_rng(1).integers(0, 2**32, count, dtype=np.uint32)
    first, second = a.copy(), np.zeros_like(a)
    events = run(text, "rotate", grid, block, [first, second, rounds], shared=4 * threads, cooperative=True)
    assert not events.failed
    assert np.array_equal(second, rotated(a, threads, rounds))


def test_a_cta_waits_for_a_higher_one(text: str) -> None:
    turn, order = np.zeros(1, np.uint32), np.zeros(300, np.uint32)
    run(text, "from_the_last", 300, 64, [turn, order], cooperative=True)
    assert turn[0] == 300
    assert np.array_equal(order, np.arange(300)[::-1])


def test_a_lock_of_all_lanes(text: str) -> None:
    lock, count = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    run(text, "locked", 4, 40, [lock, count], cooperative=True)
    assert count[0] == 160


def test_what_does_not_wait_runs_as_ever(text: str) -> None:
    out = np.zeros(10 * 32, np.uint32)
    run(text, "alone", 10, 32, [out], cooperative=True)
    assert np.array_equal(out, np.repeat(np.arange(10), 32))
