"""Kernels whose function runs several blocks of a row in one call."""

from collections.abc import Iterator

import numpy as np
import pytest
from vgpusim.codegen import native
from vgpusim.codegen.compile import PtxModule, lower
from vgpusim.codegen.emit_code import Turns

from tests.vgpusim.codegen import harness
from tests.vgpusim.codegen.harness import HEADER, run

# Each thread writes its block's place in the grid plus a parameter, in a branch that not all lanes take.
_PLACES = (
    HEADER
    + """.visible .entry k(.param .u64 a, .param .u32 b) { .reg .b32 %r<19>; .reg .b64 %x<4>; .reg .pred %p;
ld.param.u64 %x0, [a]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ctaid.z; mov.u32 %r3, %nctaid.x;
mov.u32 %r4, %nctaid.y; mov.u32 %r5, %ntid.x; mov.u32 %r6, %tid.x; mad.lo.u32 %r7, %r2, %r4, %r1;
mad.lo.u32 %r7, %r7, %r3, %r0; mad.lo.u32 %r8, %r7, %r5, %r6; setp.lt.u32 %p, %r6, 67; @!%p bra $out;
ld.param.u32 %r9, [b]; mul.lo.u32 %r10, %r2, 10000; mad.lo.u32 %r10, %r1, 100, %r10; add.u32 %r10, %r10, %r0;
add.u32 %r10, %r10, %r9; mad.wide.u32 %x1, %r8, 4, %x0; ld.global.u32 %r11, [%x1]; add.u32 %r11, %r11, %r10;
st.global.u32 [%x1], %r11; $out: ret; }"""
)

_IN_ROWS = _PLACES.replace("mad.wide.u32", "mad.wide.s32")  # whose addresses are known to be consecutive


@pytest.fixture(params=[True, False], ids=["masks", "no masks"])
def has_masks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Compile as for a processor with AVX-512's masks, and for one without."""
    monkeypatch.setattr(native, "has_masked_gathers", lambda: request.param)
    harness._compiled.cache_clear()
    yield request.param
    harness._compiled.cache_clear()


@pytest.mark.usefixtures("has_masks")
@pytest.mark.parametrize("chunk", [1, 3, 4, 64])
@pytest.mark.parametrize("grid", [(1, 1, 1), (7, 1, 1), (5, 3, 2), (1, 4, 3)])
def test_places(grid: tuple[int, int, int], chunk: int) -> None:
    """Every block runs once, whichever parts of rows a thread claims."""
    out = np.ones((*grid[::-1], 70), np.uint32)
    events = run(_PLACES, "k", grid, 70, [out, np.uint32(1_000_000)], chunk=chunk)
    z, y, x = np.indices(grid[::-1])
    expected = np.where(np.arange(70) < 67, (z * 10000 + y * 100 + x + 1_000_000)[..., None], 0) + 1
    assert np.array_equal(out, expected)
    assert events.last_warp == (tuple(size - 1 for size in grid), 2)


def test_the_parameters_may_lie_in_a_branch_that_no_lane_takes() -> None:
    out = np.zeros(70, np.uint32)
    text = _PLACES.replace("%r6, 67", "%r6, 0")
    run(text, "k", 3, 70, [out, np.uint32(1)])
    assert not out.any()


def test_which_kernels_run_in_rows() -> None:
    """The function of a small kernel without barriers runs whole blocks; kernels with a barrier, and long ones, run
    warp by warp.
    """
    long = _PLACES.replace("$out: ret;", "add.u32 %r12, %r12, 1; " * 300 + "$out: ret;")
    waiting = _PLACES.replace("$out: ret;", "$out: bar.sync 0; ret;")
    for text, turns in ((_PLACES, Turns.ROWS), (long, Turns.IN_ORDER), (waiting, Turns.LOCKSTEP)):
        whole, _ = lower(PtxModule.parse(text), "k", (70, 1, 1))
        description = next(line for line in whole.splitlines() if line.startswith("@vgx_code = "))
        assert f"i32 3, i32 {turns.value}," in description


def test_a_block_is_made_for_all_lanes_where_masks_are_slow(has_masks: bool) -> None:
    """LLVM takes the bits of a mask apart one by one, and masked stores take ten times a plain one's on AMD."""
    whole, _ = lower(PtxModule.parse(_IN_ROWS), "k", (70, 1, 1))
    stores = [line for line in whole.splitlines() if line.startswith("  store <32 x i32> %") and line.endswith(" 4")]
    assert bool(stores) != has_masks, "a warp that acts as a whole stores a row"
    assert (" to <32 x i1>" in whole) == has_masks


@pytest.mark.parametrize("text", [_PLACES, _IN_ROWS], ids=["scattered", "in rows"])
@pytest.mark.usefixtures("has_masks")
@pytest.mark.parametrize("acting", [0, 1, 31, 32, 33, 64, 69, 70])
def test_lanes_that_act(text: str, acting: int) -> None:
    out = np.ones((3, 70), np.uint32)
    run(text.replace("%r6, 67", f"%r6, {acting}"), "k", 3, 70, [out, np.uint32(7)])
    expected = np.where(np.arange(70) < acting, np.arange(3)[:, None] + 7, 0) + 1
    assert np.array_equal(out, expected)
