"""Random kernels (random_kernel.py) leave in memory what an H200 leaves there.

data/programs-h200.tsv.xz has digests by seed: of the program with its inputs, and of what the card left (580.159.04,
recorded on 2026-11-30 by tests/gpu/programs.py, 2 processors in 225 s). A program takes a second to compile, so few are
run here; the simulator's answers to all were compared when they were recorded. `vgpu run --gpu h100 -- python3
tests/gpu/programs.py OUT --known data/programs-h200.tsv.xz` compares them again."""

from __future__ import annotations

import functools
import lzma
import re
from pathlib import Path

import pytest

from tests.vgpusim.codegen.harness import run
from tests.vgpusim.codegen.random_kernel import RandomKernel, argument, digest, inputs, module, question

_DATA = Path(__file__).parent / "data" / "programs-h200.tsv.xz"
_SEEDS = (7, 31, 42, 70, 141, 372)  # of those that compile soon, with every kind among them

# Where the card's memory is not what PTX says, and what it does instead.
_SET = "the machine code of `@p set.f16.f16` and `@p set.f32.f64` turns D into a float also where p is false"
DIFFERENT = dict.fromkeys((1, 30, 87, 159, 265, 286, 375), _SET) | {
    155: "after a call through a pointer, a lane does match.all.sync without the other lanes of its membermask",
    352: "of a loop, no round does its `@!p red` although p changes in it",
}


@functools.cache
def _recorded() -> dict[int, tuple[str, str]]:
    lines = lzma.decompress(_DATA.read_bytes()).decode().splitlines()
    return {int(seed): (program, memory) for seed, program, memory in map(str.split, lines)}


def test_a_seed_is_the_same_program_for_ever() -> None:
    """The card's answers are kept by seed: another kind of program needs a class of its own."""
    for seed in (*range(5), *_SEEDS, *DIFFERENT):
        assert question(RandomKernel(seed)) == _recorded()[seed][0]


@pytest.mark.parametrize("seed", _SEEDS)
def test_memory_is_the_cards(seed: int) -> None:
    kernel = RandomKernel(seed)
    words, counters = inputs(kernel)
    events = run(module([kernel]), "k0", kernel.grid, kernel.block, [words, counters, argument(kernel)])
    assert not events.failed
    assert digest(words, counters) == _recorded()[seed][1]


def test_those_that_differ_have_what_is_said_of_them() -> None:
    for seed, reason in DIFFERENT.items():
        text = RandomKernel(seed).text("k")
        pattern = r"@!?%p\d set\.\w+(\.ftz)?\.(f16\.f16|f32\.f64) " if reason == _SET else r"match\.all\.sync|@!%p1 red"
        assert re.search(pattern, text), seed
