"""Shuffles, votes, matches, reductions: 2 warps, the second partial, against a lane-by-lane model."""

from __future__ import annotations

import numpy as np
import pytest

from tests.vgpusim.codegen.harness import HEADER, run

N = 50  # threads: one full warp and 18 lanes of another


def launch(body: str, out: int = 1, block: int = N, lanes: str = "") -> list[np.ndarray]:
    """Run `body` with %v = 1000 + 7 * tid (a .b32), %t = tid, %l = lane; returns what it leaves in %d0, %d1..."""
    results = [np.full(block, 0xDEAD, np.uint32) for _ in range(out)]
    params = ", ".join(f".param .u64 o{i}" for i in range(out))
    stores = "".join(
        f"ld.param.u64 %x0, [o{i}]; mad.wide.u32 %x1, %t, 4, %x0; st.global.u32 [%x1], %d{i};\n" for i in range(out)
    )
    text = (
        HEADER
        + f""".visible .entry k({params}) {{
.reg .b32 %d<4>, %v, %t, %l, %r<20>; .reg .b64 %x<4>; .reg .pred %p<9>;
mov.u32 %t, %tid.x; mov.u32 %l, %laneid; mad.lo.u32 %v, %t, 7, 1000;
{"".join(f"mov.u32 %d{i}, 0;" for i in range(out))}
{lanes}
{body}
$end: {stores} ret; }}"""
    )
    run(text, "k", 1, block, results)
    return results


def value(thread: int) -> int:
    return 1000 + 7 * thread


def shuffled(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The definition in the PTX ISA reference."""
    b, segment, clamp = b & 31, c >> 8 & 31, c & 31
    high, low = lane & segment | clamp & ~segment & 31, lane & segment
    if mode == "up":
        j = lane - b
        valid = j >= high
    elif mode == "down":
        j = lane + b
        valid = j <= high
    elif mode == "bfly":
        j = lane ^ b
        valid = j <= high
    else:
        j = low | b & ~segment & 31
        valid = j <= high
    return (j if valid else lane), valid


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("amount", ["3", "%r0"])
@pytest.mark.parametrize("c", [0x1F, 0x0, 0x181F, 0x1C07 | 0x1F])
def test_shfl(mode: str, amount: str, c: int) -> None:
    body = f"and.b32 %r0, %t, 7; shfl.sync.{mode}.b32 %d0|%p1, %v, {amount}, {c}, 0xffffffff; selp.u32 %d1, 1, 0, %p1;"
    got, valid = launch(body, 2)
    for thread in range(N):
        lane, warp = thread % 32, thread // 32
        source, ok = shuffled(mode, lane, 3 if amount == "3" else thread & 7, c)
        other = warp * 32 + source
        assert got[thread] == value(other if other < N else thread)
        assert valid[thread] == ok


def test_shfl_honours_divergence_and_member_mask() -> None:
    """Only the even lanes take part; an odd source gives a lane its own value."""
    body = "and.b32 %r0, %l, 1; setp.ne.u32 %p0, %r0, 0; @%p0 bra $end; shfl.sync.down.b32 %d0, %v, 3, 31, 0x55555555;"
    (got,) = launch(body)
    assert got.tolist() == [value(t) if t % 2 == 0 else 0 for t in range(N)]
    body = body.replace("3, 31", "2, 31")
    (got,) = launch(body)
    for t in range(0, N, 2):
        inside = t % 32 + 2 < 32 and t + 2 < N
        assert got[t] == value(t + 2 if inside else t)


def test_votes() -> None:
    body = """setp.gt.u32 %p1, %t, 20; vote.sync.ballot.b32 %d0, %p1, 0xffffffff;
vote.sync.all.pred %p2, %p1, 0xffffffff;
vote.sync.any.pred %p3, %p1, 0xffffffff; vote.sync.uni.pred %p4, %p1, 0xffffffff;
vote.sync.any.pred %p5, !%p1, 0xffffffff;
selp.u32 %d1, 1, 0, %p2; @%p3 add.u32 %d1, %d1, 2; @%p4 add.u32 %d1, %d1, 4; @%p5 add.u32 %d1, %d1, 8;
activemask.b32 %d2;"""
    ballot, flags, active = launch(body, 3)
    for t in range(N):
        lanes = range(t // 32 * 32, min(N, t // 32 * 32 + 32))
        true = [x > 20 for x in lanes]
        assert ballot[t] == sum(v << (x % 32) for x, v in zip(lanes, true, strict=True))
        expected = all(true) + 2 * any(true) + 4 * (all(true) or not any(true)) + 8 * (not all(true))
        assert flags[t] == expected
        assert active[t] == sum(1 << (x % 32) for x in lanes)


def test_votes_of_part_of_a_warp() -> None:
    """Tiles of 16 lanes, each with its own member mask; then a vote in divergent code."""
    body = """and.b32 %r0, %l, 16; shl.b32 %r1, 0xffff, %r0; setp.lt.u32 %p1, %t, 5; vote.sync.any.pred %p2, %p1, %r1;
selp.u32 %d0, 1, 0, %p2; setp.lt.u32 %p3, %l, 9; @!%p3 bra $end; vote.sync.ballot.b32 %d1, 1, 0x1ff;"""
    any_, ballot = launch(body, 2, block=32)
    assert any_.tolist() == [1] * 16 + [0] * 16
    assert ballot.tolist() == [0x1FF] * 9 + [0] * 23


def test_match() -> None:
    body = """rem.u32 %r0, %t, 5; match.any.sync.b32 %d0, %r0, 0xffffffff; match.all.sync.b32 %d1|%p1, %r0, 0xffffffff;
selp.u32 %d1, 1, %d1, %p1; cvt.u64.u32 %x0, 7; match.all.sync.b64 %d2|%p2, %x0, 0xffffffff;"""
    same, none, every = launch(body, 3)
    for t in range(N):
        lanes = range(t // 32 * 32, min(N, t // 32 * 32 + 32))
        assert same[t] == sum(1 << (x % 32) for x in lanes if x % 5 == t % 5)
        assert none[t] == 0
        assert every[t] == sum(1 << (x % 32) for x in lanes)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("add.u32", sum),
        ("min.u32", min),
        ("max.s32", max),
        ("and.b32", lambda v: int(np.bitwise_and.reduce(v))),
        ("or.b32", lambda v: int(np.bitwise_or.reduce(v))),
        ("xor.b32", lambda v: int(np.bitwise_xor.reduce(v))),
    ],
)
def test_redux(name: str, function: object) -> None:
    (got, part) = launch(
        f"""redux.sync.{name} %d0, %v, 0xffffffff; and.b32 %r0, %l, 16; shl.b32 %r1, 0xffff, %r0;
redux.sync.{name} %d1, %v, %r1;""", 2)  # fmt: skip
    assert callable(function)
    for t in range(N):
        assert got[t] == function([value(x) for x in range(t // 32 * 32, min(N, t // 32 * 32 + 32))])
        assert part[t] == function([value(x) for x in range(t // 16 * 16, min(N, t // 16 * 16 + 16))])


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("modifiers", ["", ".abs", ".NaN", ".abs.NaN"])
def test_redux_of_floats(name: str, modifiers: str) -> None:
    """Lane 3 of each warp has a NaN; reductions of the lower half, of the upper half, and of lane 3 alone."""
    (got, alone) = launch(
        f"""cvt.rn.f32.s32 %r2, %l; fma.rn.f32 %r2, %r2, 0fBF800000, 0f40600000; setp.eq.u32 %p1, %l, 3;
@%p1 mov.b32 %r2, 0x7fc00001; and.b32 %r0, %l, 16; shl.b32 %r1, 0xffff, %r0;
redux.sync.{name}{modifiers}.f32 %d0, %r2, %r1; setp.ne.u32 %p2, %l, 3; @%p2 bra $end;
redux.sync.{name}{modifiers}.f32 %d1, %r2, 8;""", 2)  # fmt: skip
    function = np.fmin if name == "min" else np.fmax
    for t in range(N):
        lanes = np.arange(t // 16 * 16, min(N, t // 16 * 16 + 16)) % 32
        values = np.where(lanes == 3, np.nan, 3.5 - lanes)
        values = np.abs(values) if "abs" in modifiers else values
        expected = np.float32(np.nan if "NaN" in modifiers and 3 in lanes else function.reduce(values))
        assert got[t] == (0x7FFFFFFF if np.isnan(expected) else expected.view(np.uint32)), t
        assert alone[t] == (0x7FFFFFFF if t % 32 == 3 else 0)


def test_lane_registers() -> None:
    body = "mov.u32 %d0, %lanemask_lt; mov.u32 %d1, %lanemask_ge; mov.u32 %d2, %warpid; mov.u32 %d3, %laneid;"
    lt, ge, warp, lane = launch(body, 4)
    for t in range(N):
        assert (lt[t], ge[t]) == ((1 << t % 32) - 1, 0xFFFFFFFF & ~((1 << t % 32) - 1))
        assert (warp[t], lane[t]) == (t // 32, t % 32)
