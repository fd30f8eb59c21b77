"""Bulk copies to the CTAs of a cluster, and tensor copies that are refused at compile time. The tensor copies
themselves are in the simulator's C half, which tests/programs/tensor_copy.cu tests."""

from __future__ import annotations

import numpy as np
import pytest
from vgpusim.codegen.compile import PtxError

from tests.vgpusim.codegen.harness import HEADER, run

LOAD = "shared::cluster.global.tile.mbarrier::complete_tx::bytes"


def test_a_bulk_copy_to_several_ctas() -> None:
    """Rank 1 copies for ranks 0 and 2 of each cluster; each waits at its own barrier for its own bytes."""
    text = f"""{HEADER}.visible .entry k(.param .u64 in, .param .u64 out) {{
.reg .b32 %r<6>; .reg .b64 %x<4>; .reg .b16 %m; .reg .pred %p<4>;
.shared .align 16 .b8 box[128]; .shared .align 8 .b64 bar;
ld.param.u64 %x0, [in]; ld.param.u64 %x1, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank;
mov.u32 %r4, box; mad.lo.u32 %r5, %r0, 4, %r4; st.shared.u32 [%r5], 77;
setp.ne.u32 %p0, %r0, 0; @%p0 bra READY;
mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 128;
READY: barrier.cluster.arrive; barrier.cluster.wait;
setp.ne.u32 %p1, %r1, 1; or.pred %p1, %p1, %p0; @%p1 bra SENT;
mov.u16 %m, 5;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [box], [%x0], 128, [bar], %m;
SENT: setp.eq.u32 %p2, %r1, 1; @%p2 bra DONE;
WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra WAIT;
DONE: ld.shared.u32 %r2, [%r5]; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r3, %r3, 32, %r0;
mad.wide.u32 %x2, %r3, 4, %x1; st.global.u32 [%x2], %r2;
barrier.cluster.arrive; barrier.cluster.wait; ret; }}"""
    a, out = np.arange(32, dtype=np.uint32) * 3, np.zeros((6, 32), np.uint32)
    assert not run(text, "k", 6, 32, [a, out], cluster=(3, 1, 1)).failed
    for cta in range(6):
        assert out[cta].tolist() == ([77] * 32 if cta % 3 == 1 else a.tolist())


@pytest.mark.parametrize(
    ("instruction", "result"),
    [
        (f"cp.async.bulk.tensor.3d.{LOAD.replace('tile', 'im2col')} [%r], [%x, {{%r, %r, %r}}], [%r], {{%h}}", 801),
        (f"cp.async.bulk.tensor.2d.{LOAD} [%r], [%x, {{%r}}], [%r]", 218),
        (f"cp.async.bulk.tensor.2d.{LOAD} [%r], [%x], [%r]", 218),
    ],
)
def test_other_forms_are_refused(instruction: str, result: int) -> None:
    text = f"{HEADER}.visible .entry k() {{ .reg .b32 %r; .reg .b16 %h; .reg .b64 %x; {instruction}; ret; }}"
    with pytest.raises(PtxError, match=r"cp\.async\.bulk\.tensor") as caught:
        run(text, "k", 1, 32, [])
    assert caught.value.result == result
