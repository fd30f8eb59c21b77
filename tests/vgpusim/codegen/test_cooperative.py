"""Kernels whose CTAs wait for each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.vgpusim.codegen.harness import run

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


BARRIER = """
.version 8.0
.target sm_75
.address_size 64
.visible .entry meet(.param .u64 numbers, .param .u64 out)
{
  .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .pred %p<2>;
  .shared .align 4 .b8 tile[512];
  ld.param.u64 %d0, [numbers]; ld.param.u64 %d1, [out];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %d2, %r0, 4;
  add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
  ld.global.u32 %r1, [%d3];
  mov.u32 %r2, tile; shl.b32 %r3, %r0, 2; add.u32 %r4, %r2, %r3;
  st.shared.u32 [%r4], %r0;
  barrier.sync %r1;
  xor.b32 %r5, %r3, 256; add.u32 %r6, %r2, %r5;
  ld.shared.u32 %r7, [%r6];
  st.global.u32 [%d4], %r7;
  ret;
}
"""


def test_a_barrier_whose_number_each_thread_loads() -> None:
    numbers, out = np.full(128, 3, np.uint32), np.zeros(128, np.uint32)
    assert not run(BARRIER, "meet", 1, 128, [numbers, out]).failed
    assert np.array_equal(out, np.arange(128) ^ 64)
    numbers[70] = 4
    assert run(BARRIER, "meet", 1, 128, [numbers, out]).failed[0][0] == 719


OF_LIBRARY = """
.version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
.visible .entry turns(.param .u64 out, .param .u32 rounds)
{
  .reg .b32 %r<12>; .reg .b64 %d<8>; .reg .pred %p<2>;
  ld.param.u64 %d0, [out]; ld.param.u32 %r0, [rounds];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;
  mov.u32 %r5, %nctaid.x; mul.lo.u32 %r5, %r5, %r2; sub.u32 %r6, %r5, %r4; sub.u32 %r6, %r6, 1;
  mul.wide.u32 %d1, %r4, 4; add.u64 %d1, %d0, %d1; mul.wide.u32 %d2, %r6, 4; add.u64 %d2, %d0, %d2;
  { .param .b32 s; st.param.b32 [s], 1; .param .b64 h; call.uni (h), cudaCGGetIntrinsicHandle, (s);
    ld.param.b64 %d3, [h]; }
again:
  ld.volatile.global.u32 %r7, [%d2]; add.u32 %r7, %r7, 1;
  { .param .b64 h; st.param.b64 [h], %d3; .param .b32 f; st.param.b32 [f], 0; .param .b32 e;
    call.uni (e), cudaCGSynchronize, (h, f); ld.param.b32 %r8, [e]; }
  st.global.u32 [%d1], %r7;
  { .param .b64 h; st.param.b64 [h], %d3; .param .b32 f; st.param.b32 [f], 0; .param .b32 e;
    call.uni (e), cudaCGSynchronize, (h, f); ld.param.b32 %r9, [e]; add.u32 %r8, %r8, %r9; }
  sub.u32 %r0, %r0, 1; setp.ne.u32 %p0, %r0, 0; @%p0 bra again;
  setp.ne.u32 %p1, %r8, 0; @%p1 st.global.u32 [%d1], -1; // an error of the barriers
  ret;
}
"""


def test_grid_barriers_of_libcudadevrt() -> None:
    """numba's grid groups call NVIDIA's library, where CUDA's headers have the barrier inline."""
    out, rounds = np.arange(7 * 40, dtype=np.uint32), 6
    run(OF_LIBRARY, "turns", 7, 40, [out, rounds], cooperative=True)
    assert np.array_equal(out, np.arange(7 * 40) + rounds)
