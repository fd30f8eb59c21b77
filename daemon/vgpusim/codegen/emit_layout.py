"""How a kernel's frames are laid out; see emit_run."""

from __future__ import annotations

from dataclasses import dataclass

from vgpusim.ptx import ir
from vgpusim.ptx.module import align_up

RUNNING, ENDED = -1, -2  # of the word that says what a warp waits for, else a barrier's number
BARRIER_WORDS = 8 * (ir.CLUSTER_BARRIER + 1)
DEADLOCK = 719  # CUDA_ERROR_LAUNCH_FAILED


@dataclass(frozen=True, slots=True)
class FrameLayout:
    thread: int  # offset of a resident CTA's vgx_sim_thread
    saved: int  # offset of warp 0's saved registers
    saved_nbytes: int  # of one warp
    nbytes: int
    local_nbytes: int  # of one warp
    locals_nbytes: int  # of a CTA


def lay_out(warp_count: int, saved_nbytes: int, local_nbytes: int, barriers: bool) -> FrameLayout:
    """`local_nbytes` is a warp's, all lanes."""
    thread = align_up(tables_nbytes(warp_count), 64)
    saved = thread + 64
    warps = warp_count if barriers else 1
    nbytes = align_up(saved + warps * saved_nbytes, 64)
    return FrameLayout(thread, saved, saved_nbytes, nbytes, local_nbytes, align_up(warps * local_nbytes, 64))


def tables_nbytes(warp_count: int) -> int:
    return (BARRIER_WORDS + 3 * warp_count) * 4
