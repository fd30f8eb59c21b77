"""Random kernels (random_kernel.py) leave in memory what an H200 leaves there.

data/programs-h200.tsv.xz has digests by seed: of the program with its inputs, and of what the card left (580.159.04,
recorded twice on 2026-11-30 by tests/gpu/programs.py: 2 processors in 225 s, 14 in 173 s). A program takes a second to
compile, so few are run here; docs/simulator.md says how many of the simulator's answers were compared. `vgpu run --gpu
h100 -- python3 tests/gpu/programs.py OUT --known data/programs-h200.tsv.xz` compares them again."""

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

# Where the card's memory is not the simulator's: why, and what the program's text has, by seed. The digests are of the
# driver's default optimisation level, 4; the second recording has level 0 as well.
_SET = (
    "both levels: a guarded `set` changes D also where its guard is false: to the number that D's old bits are as an "
    "integer, without the sign if D is a float",
    r"@!?%p\d set\.\w+(\.ftz)?\.(b?f16\.b?f16|f32\.(f64|s64|u16)|s32\.(f16|s16)) ",
)
_VIDEO = ("both levels: a guarded `vsub4.add` is done though no guard is true", r"@%p0 vsub4\.u32\.u32\.u32\.add ")
_MATCH = (
    "level 4: after a call through a pointer, a lane does match.all.sync without the other lanes of its membermask",
    r"match\.all\.sync",
)
_LOOP = ("level 4: of a loop, no round does its `@!p red` although p changes in it", r"@!%p1 red")
_LEVEL = ("the card's memory depends on the level, and is the simulator's at level 0", "")
_CARRY = ("addc reads a carry that no `add.cc` wrote, as the guard of one is false: undefined", r"@%p0 add\.cc")
DIFFERENT = dict.fromkeys(
    (1, 30, 87, 159, 265, 286, 375, 10057, 10108, 10348, 10402, 10408, 10511, 10539, 10548, 10613, 10621, 10695, 10727),
    _SET,
) | {
    155: _MATCH,
    352: _LOOP,
    10020: _VIDEO,
    10137: _CARRY,
    10151: _LEVEL,
    10207: _LEVEL,
    10593: _LEVEL,
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
    for seed, (_, pattern) in DIFFERENT.items():
        assert re.search(pattern, RandomKernel(seed).text("k")), seed
