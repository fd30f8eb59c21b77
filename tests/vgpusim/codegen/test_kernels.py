"""Whole kernels, compiled from CUDA C by nvcc (kernels/*.cu, `nvcc -ptx -arch=compute_N`), against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.vgpusim.codegen.harness import run

KERNELS = Path(__file__).parent / "kernels"


@pytest.fixture(params=["sm75", "sm90"])
def basic(request: pytest.FixtureRequest) -> str:
    return (KERNELS / f"basic_{request.param}.ptx").read_text()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("block", [32, 100, 256, 1])
def test_saxpy(basic: str, rng: np.random.Generator, block: int) -> None:
    n = 1003
    x, y = rng.random(n, dtype=np.float32), rng.random(n, dtype=np.float32)
    expected = (np.float32(0.5) * x.astype(np.float64) + y).astype(np.float32)
    run(basic, "saxpy", (n + block - 1) // block, block, [n, np.float32(0.5), x, y])
    assert np.array_equal(y, expected)


@pytest.mark.parametrize("tile", [16, 32])
def test_tiled_matmul(basic: str, rng: np.random.Generator, tile: int) -> None:
    m, n, k = 70, 45, 83
    a, b = rng.random((m, k), dtype=np.float32), rng.random((k, n), dtype=np.float32)
    c = np.full((m, n), np.nan, np.float32)
    run(
        basic, f"matmul{tile}", ((n + tile - 1) // tile, (m + tile - 1) // tile, 1), (tile, tile, 1), [a, b, c, m, n, k]
    )
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-5)


def collatz_score(value: int, limit: int) -> int:
    steps = 0
    while value != 1 and steps < limit:
        value = 3 * value + 1 if value & 1 else value >> 1
        steps += 1
    return -1 if steps == limit else steps if steps % 3 == 0 else steps // 2


@pytest.mark.parametrize("block", [32, 128, 256])
def test_divergent_loop_and_shuffle_reduction(basic: str, rng: np.random.Generator, block: int) -> None:
    x = rng.integers(1, 100_000, 3001, dtype=np.int32)
    total = np.zeros(1, np.int64)
    run(basic, "reduce_div", 3, block, [x, total, x.size, 120])
    assert total[0] == sum(collatz_score(int(v), 120) for v in x)


def test_shuffle_sum(basic: str, rng: np.random.Generator) -> None:
    x, out = rng.random(5000, dtype=np.float32), np.zeros(4, np.float32)
    run(basic, "reduce_sum", 4, 256, [x, out, x.size])
    np.testing.assert_allclose(out.sum(), x.sum(dtype=np.float64), rtol=1e-5)


@pytest.mark.parametrize("name", ["hist_global", "hist_shared"])
@pytest.mark.parametrize("block", [96, 50])
def test_histogram(basic: str, rng: np.random.Generator, name: str, block: int) -> None:
    data, counts = rng.integers(0, 256, 5003, dtype=np.uint8), np.zeros(256, np.uint32)
    run(basic, name, 3, block, [data, counts, data.size])
    assert np.array_equal(counts, np.bincount(data, minlength=256))


def test_stop_word_ends_a_launch_between_ctas(basic: str) -> None:
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    run(basic, "saxpy", 2, 32, [64, np.float32(1), x, y], stop=1)
    assert not y.any()
