"""Warps of a CTA that wait for each other in memory, without a barrier."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vgpusim.codegen.compile import PtxModule
from vgpusim.ptx.module import RESERVED_SHARED_NBYTES

from tests.vgpusim.codegen.harness import HEADER, run

KERNELS = Path(__file__).parent / "kernels"


@pytest.mark.parametrize("target", ["sm75", "sm90"])
def test_tiles_of_several_warps(target: str) -> None:
    text = (KERNELS / f"tiles_{target}.ptx").read_text()
    x, out = np.random.default_rng(1).integers(0, 100, 256, dtype=np.int32), np.zeros(256, np.int32)
    run(text, "wide_tiles", 1, 256, [x, out])
    sums = x.reshape(2, 128)
    expected = sums.sum(1) * 1000 + sums[:, 77] + (sums == 99).any(1) * 500
    assert np.array_equal(out, np.repeat(expected, 128))


@pytest.mark.parametrize("load", ["ld.volatile.shared.u32 %v, [slot];", "atom.shared.or.b32 %v, [slot], 0;"])
def test_a_chain_of_warps_from_last_to_first(load: str) -> None:
    """Each warp, in one lane or in all lanes, waits until the next warp has decremented the slot."""
    text = f"""{HEADER}.shared .u32 slot;
    .visible .entry k(.param .u64 out, .param .u32 lanes) {{ .reg .b32 %t, %w, %v, %n, %l; .reg .b64 %o; .reg .pred %p;
    mov.u32 %t, %tid.x; shr.u32 %w, %t, 5; and.b32 %l, %t, 31; ld.param.u32 %n, [lanes]; ld.param.u64 %o, [out];
    setp.ne.u32 %p, %t, 0; @%p bra $set; st.shared.u32 [slot], 8;
    $set: bar.sync 0; setp.ge.u32 %p, %l, %n; @%p bra $done; sub.u32 %n, 8, 1; sub.u32 %n, %n, %w;
    add.u32 %w, %w, 1;
    $wait: {load} setp.ne.u32 %p, %v, %w; @%p bra $wait;
    bar.warp.sync -1; membar.cta; setp.ne.u32 %p, %l, 0; @%p bra $done;
    sub.u32 %w, %w, 1; st.volatile.shared.u32 [slot], %w; mad.wide.u32 %o, %w, 4, %o; st.global.u32 [%o], %n;
    $done: ret; }}"""
    for lanes in (32, 1):
        out = np.zeros(8, np.uint32)
        assert not run(text, "k", 1, 256, [out, lanes]).failed
        assert np.array_equal(out, np.arange(8)[::-1])


def test_the_systems_part_of_shared_memory() -> None:
    """The reserved part precedes the kernel's own, only in kernels that use it; attributes do not count it."""
    text = f"""{HEADER}.shared .align 4 .b8 own[12];
    .visible .entry k(.param .u64 out) {{ .reg .b32 %r<5>; .reg .b64 %o; ld.param.u64 %o, [out];
    mov.u32 %r0, %reserved_smem_offset_begin; mov.u32 %r1, %reserved_smem_offset_end; mov.u32 %r2, own;
    mov.u32 %r3, %total_smem_size; mov.u32 %r4, %aggr_smem_size; st.global.v4.u32 [%o], {{%r0, %r1, %r2, %r3}};
    st.global.u32 [%o+16], %r4; ret; }}
    .visible .entry plain(.param .u64 out) {{ .reg .b32 %r; .reg .b64 %o; ld.param.u64 %o, [out]; mov.u32 %r, own;
    st.global.u32 [%o], %r; ret; }}"""
    out = np.full(8, 7, np.uint32)
    run(text, "k", 1, 1, [out], shared=100)
    size = RESERVED_SHARED_NBYTES
    assert out[:5].tolist() == [0, size, size, 112, size + 112]
    assert PtxModule.parse(text).entry("k").shared_nbytes == 12
    run(text, "plain", 1, 1, [out])
    assert out[0] == 0
