"""CTAs that wait for any other CTA, without a cooperative launch: a real device would run them concurrently."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vgpusim.codegen.compile import PtxModule, compile_entry

from tests.vgpusim.codegen.harness import HEADER, run

KERNELS = Path(__file__).parent / "kernels"

# Solves a lower triangular system as sync-free solvers do: one CTA for each row, waiting for the rows it needs. Rows
# are numbered from the last CTA to the first.
SOLVE = f"""{HEADER}.visible .entry solve(.param .u64 a, .param .u64 x, .param .u64 done, .param .u32 n) {{
.reg .b32 %r<9>; .reg .f32 %f<6>; .reg .b64 %d<12>; .reg .pred %p<3>;
ld.param.u64 %d0, [a]; ld.param.u64 %d1, [x]; ld.param.u64 %d2, [done]; ld.param.u32 %r0, [n];
mov.u32 %r1, %ctaid.x; sub.u32 %r2, %r0, 1; sub.u32 %r1, %r2, %r1; mov.u32 %r3, %tid.x;
setp.ne.u32 %p0, %r3, 0; @%p0 bra $end;
mul.wide.u32 %d3, %r1, 4; add.u64 %d4, %d1, %d3; add.u64 %d5, %d2, %d3;
mul.lo.u32 %r4, %r1, %r0; mul.wide.u32 %d6, %r4, 4; add.u64 %d6, %d6, %d0;
ld.global.f32 %f0, [%d4]; mov.u32 %r5, 0;
$row: setp.ge.u32 %p0, %r5, %r1; @%p0 bra $divide;
mul.wide.u32 %d7, %r5, 4; add.u64 %d8, %d2, %d7; add.u64 %d9, %d1, %d7; add.u64 %d10, %d6, %d7;
$wait: LOAD setp.eq.u32 %p1, %r6, 0; @%p1 bra $wait;
ld.global.f32 %f1, [%d9]; ld.global.f32 %f2, [%d10]; neg.f32 %f2, %f2; fma.rn.f32 %f0, %f1, %f2, %f0;
add.u32 %r5, %r5, 1; bra $row;
$divide: mul.wide.u32 %d7, %r1, 4; add.u64 %d10, %d6, %d7; ld.global.f32 %f3, [%d10]; div.rn.f32 %f0, %f0, %f3;
st.global.f32 [%d4], %f0; membar.gl; mov.u32 %r7, 1; st.global.u32 [%d5], %r7;
$end: ret; }}"""
LOADS = ("ld.volatile.global.u32 %r6, [%d8];", "ld.global.acquire.gpu.u32 %r6, [%d8];",
         "ld.relaxed.gpu.u32 %r6, [%d8];", "atom.global.or.b32 %r6, [%d8], 0;")  # fmt: skip


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("block", [1, 96])
def test_a_triangular_system(load: str, block: int) -> None:
    n = 40
    rng = np.random.default_rng(2)
    a = (np.tril(rng.normal(size=(n, n))) / n + np.eye(n)).astype("f4")
    x, done = rng.normal(size=n).astype("f4"), np.zeros(n, "u4")
    expected = np.linalg.solve(a.astype("f8"), x)
    events = run(SOLVE.replace("LOAD", load), "solve", n, block, [a, x, done, n])
    assert not events.failed
    assert np.abs(x - expected).max() < 1e-5
    assert max(events.further) == n - 1  # all CTAs waited for the last one


@pytest.mark.parametrize("target", ["sm75", "sm90"])
def test_barriers_of_the_grid_made_of_a_counter(target: str) -> None:
    """Each CTA keeps its own shared and local memory, barriers and registers."""
    text = (KERNELS / f"grid_{target}.ptx").read_text()
    turn, order = np.zeros(1, np.uint32), np.zeros(60, np.uint32)
    run(text, "from_the_last", 60, 64, [turn, order])
    assert turn[0] == 60
    assert np.array_equal(order, np.arange(60)[::-1])


GRID_BARRIER = f"""{HEADER}.shared .align 4 .b8 tile[256];
.visible .entry rounds(.param .u64 a, .param .u64 b, .param .u64 counter, .param .u32 rounds) {{
.reg .b32 %r<16>; .reg .b64 %d<12>; .reg .pred %p<4>; .local .align 4 .b8 mine[4]; .reg .b32 %l<3>;
ld.param.u64 %d0, [a]; ld.param.u64 %d1, [b]; ld.param.u64 %d2, [counter]; ld.param.u32 %r0, [rounds];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x; mov.u32 %r5, %ntid.x; mov.u32 %r4, 0;
st.local.u32 [mine], %r2;
$round: mad.lo.u32 %r6, %r2, %r5, %r1; mul.wide.u32 %d3, %r6, 4; add.u64 %d3, %d3, %d0;
ld.volatile.global.u32 %r7, [%d3]; shl.b32 %r8, %r1, 2; mov.u32 %r9, tile; add.u32 %r9, %r9, %r8;
st.shared.u32 [%r9], %r7; bar.sync 0;
mov.u32 %r9, tile; sub.u32 %r10, %r5, 1; sub.u32 %r10, %r10, %r1; shl.b32 %r10, %r10, 2; add.u32 %r9, %r9, %r10;
ld.shared.u32 %r7, [%r9]; ld.local.u32 %l0, [mine]; add.u32 %r7, %r7, %l0;
add.u32 %r11, %r2, 1; rem.u32 %r11, %r11, %r3; mad.lo.u32 %r6, %r11, %r5, %r1; mul.wide.u32 %d3, %r6, 4;
add.u64 %d3, %d3, %d1; st.global.u32 [%d3], %r7;
add.u32 %r4, %r4, 1; membar.gl; bar.sync 0; setp.ne.u32 %p0, %r1, 0; @%p0 bra $met;
atom.global.add.u32 %r12, [%d2], 1; mul.lo.u32 %r13, %r4, %r3;
$spin: ld.volatile.global.u32 %r12, [%d2]; setp.lt.u32 %p1, %r12, %r13; @%p1 bra $spin;
$met: bar.sync 0; mov.u64 %d5, %d0; mov.u64 %d0, %d1; mov.u64 %d1, %d5;
setp.lt.u32 %p2, %r4, %r0; @%p2 bra $round; ret; }}"""


def test_a_barrier_in_rounds() -> None:
    """As in cuSPARSE's solvers: every CTA increments one counter, then waits until all have."""
    ctas, block, rounds = 16, 64, 4
    a = np.random.default_rng(3).integers(0, 2**31, ctas * block, dtype=np.uint32)
    b, counter, expected = np.zeros_like(a), np.zeros(1, np.uint32), a.reshape(ctas, block)
    for _ in range(rounds):
        expected = np.roll(expected[:, ::-1] + np.arange(ctas, dtype=np.uint32)[:, None], 1, axis=0)
    events = run(GRID_BARRIER, "rounds", ctas, block, [a, b, counter, rounds])
    assert not events.failed
    assert counter[0] == ctas * rounds
    assert np.array_equal(a.reshape(ctas, block), expected)


def test_ctas_that_wait_for_lower_ones_alone_run_one_after_another() -> None:
    """In a look-back no CTA starts before the lower ones have ended."""
    text = f"""{HEADER}.visible .entry k(.param .u64 sums) {{ .reg .b32 %r<6>; .reg .b64 %d<4>; .reg .pred %p<2>;
    ld.param.u64 %d0, [sums]; mov.u32 %r0, %ctaid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d1, %d0;
    $wait: ld.volatile.global.u32 %r1, [%d1]; setp.eq.u32 %p0, %r1, 0; @%p0 bra $wait;
    add.u32 %r1, %r1, %r0; st.volatile.global.u32 [%d1+4], %r1; ret; }}"""
    sums = np.zeros(51, np.uint32)
    sums[0] = 1
    events = run(text, "k", 50, 1, [sums])
    assert np.array_equal(sums, 1 + np.concatenate([[0], np.cumsum(np.arange(50))]))
    assert events.further == []


@pytest.mark.parametrize(
    ("wait", "interleaved"),
    [
        ("ld.volatile.shared.u32 %r0, [s];", False),
        ("ld.volatile.global.u32 %r0, [g];", True),
        ("ld.global.u32 %r0, [g];", False),
    ],
)
def test_only_waits_for_other_ctas_cost_something(wait: str, interleaved: bool) -> None:
    text = f"""{HEADER}.shared .u32 s; .global .u32 g;
    .visible .entry k() {{ .reg .b32 %r<2>; .reg .pred %p;
    $wait: {wait} setp.eq.u32 %p, %r0, 0; @%p bra $wait; ret; }}"""
    assert compile_entry(PtxModule.parse(text), "k", (64, 1, 1)).interleaved == interleaved
