"""Random kernels (random_kernel.py) leave in memory what an H200 leaves there."""

from __future__ import annotations

from tests.vgpusim.codegen.random_kernel import RandomKernel, question


def test_a_seed_is_the_same_program_for_ever() -> None:
    """The card's answers are kept by seed: another kind of program needs a class of its own."""
    assert [question(RandomKernel(seed)) for seed in range(4)] == [
        "1fc6ca67cd",
        "ae828ab1da",
        "38121baacf",
        "6cb49dbb22",
    ]
