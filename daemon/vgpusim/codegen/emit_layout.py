"""The layout of a kernel's frames: tables, the scheduler's state of a CTA, registers that its warps have saved.

Tables, in 32-bit words: 17 barriers of 8 words, then for each warp the barrier that it waits at, then for each warp the
place that it resumes at, then for each warp whether it has arrived at its cluster's barrier. Without barriers one warp
runs after another, in one frame."""

from __future__ import annotations

from dataclasses import dataclass

from vgpusim.ptx import ir
from vgpusim.ptx.module import align_up

RUNNING = -1  # value of the word that says what a warp waits for; other values are barrier numbers
ENDED = -2  # the same
BARRIER_WORDS = 8 * (ir.CLUSTER_BARRIER + 1)
TURN_NBYTES = 384


@dataclass(frozen=True, slots=True)
class FrameLayout:
    turn: int  # offset of the scheduler's state of a CTA that takes turns
    saved: int  # offset of warp 0's saved registers
    saved_nbytes: int  # of one warp
    nbytes: int
    local_nbytes: int  # of one warp
    locals_nbytes: int  # of a CTA


def lay_out(warp_count: int, saved_nbytes: int, local_nbytes: int, barriers: bool) -> FrameLayout:
    """`local_nbytes`: local memory of a warp, all lanes."""
    turn = align_up((BARRIER_WORDS + 3 * warp_count) * 4, 64)
    saved = turn + TURN_NBYTES
    warps = warp_count if barriers else 1
    nbytes = align_up(saved + warps * saved_nbytes, 64)
    return FrameLayout(turn, saved, saved_nbytes, nbytes, local_nbytes, align_up(warps * local_nbytes, 64))
