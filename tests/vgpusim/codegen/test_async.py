"""st.async and red.async: stores to another CTA of the cluster, which waits at its own mbarrier for their bytes."""

from __future__ import annotations

import numpy as np
import pytest
from vgpusim.codegen.compile import PtxError

from tests.vgpusim.codegen.harness import HEADER, run

TO = "shared::cluster.mbarrier::complete_tx::bytes"


def sent(nbytes: int, instruction: str) -> list[int]:
    """Each lane of each CTA of a pair does `instruction` to %a, in the other CTA, with the numbers of its CTA and lane
    in %r0, %r1; the other CTA waits for 32 times `nbytes`. What both then have, two words a lane."""
    text = f"""{HEADER}.visible .entry k(.param .u64 out) {{
.reg .b32 %r<6>, %a, %b; .reg .b64 %x<5>; .reg .pred %p<3>;
.shared .align 16 .b8 words[256]; .shared .align 8 .b64 bar;
ld.param.u64 %x0, [out]; mov.u32 %r1, %tid.x; mov.u32 %r0, %cluster_ctarank;
mov.u32 %r2, words; mad.lo.u32 %r2, %r1, 8, %r2; mov.u64 %x1, 7; st.shared.u64 [%r2], %x1;
setp.ne.u32 %p0, %r1, 0; @%p0 bra READY;
mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], {32 * nbytes};
READY: barrier.cluster.arrive; barrier.cluster.wait;
xor.b32 %r3, %r0, 1; mapa.shared::cluster.u32 %a, %r2, %r3; mov.u32 %r4, bar; mapa.shared::cluster.u32 %b, %r4, %r3;
{instruction}
WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT;
ld.shared.u64 %x2, [%r2]; mad.lo.u32 %r4, %r0, 32, %r1; mad.wide.u32 %x3, %r4, 8, %x0; st.global.u64 [%x3], %x2;
barrier.cluster.arrive; barrier.cluster.wait; ret; }}"""
    out = np.zeros((2, 32), np.uint64)
    assert not run(text, "k", 2, 32, [out], cluster=(2, 1, 1)).failed
    return out.ravel().tolist()


def test_stores() -> None:
    got = sent(4, f"mad.lo.u32 %r3, %r0, 100, %r1; st.async.weak.{TO}.b32 [%a], %r3, [%b];")
    assert got == [100 + lane for lane in range(32)] + list(range(32))
    got = sent(8, f"st.async.{TO}.v2.b32 [%a], {{%r1, %r0}}, [%b];")
    assert got == [lane | 1 << 32 for lane in range(32)] + list(range(32))
    got = sent(8, f"cvt.u64.u32 %x1, %r1; st.async.{TO}.u64 [%a], %x1, [%b];")
    assert got == 2 * list(range(32))


@pytest.mark.parametrize(
    ("operation", "wanted"), [("add.u32", 7 + 5), ("max.s32", 7), ("inc.u32", 0), ("xor.b32", 7 ^ 5), ("min.u32", 5)]
)
def test_reductions(operation: str, wanted: int) -> None:
    got = sent(4, f"mov.u32 %r3, 5; red.async.relaxed.cluster.{TO}.{operation} [%a], %r3, [%b];")
    assert got == 64 * [wanted]


def test_reductions_of_64_bits() -> None:
    assert sent(
        8, f"mov.u64 %x1, 1; shl.b64 %x1, %x1, 40; red.async.relaxed.cluster.{TO}.add.u64 [%a], %x1, [%b];"
    ) == (64 * [7 + (1 << 40)])


@pytest.mark.parametrize(
    "instruction", ["st.async.mmio.release.sys.global.b32 [%x0], %r0", f"st.async.{TO}.b32 [%a], %r0"]
)
def test_other_forms_are_refused(instruction: str) -> None:
    with pytest.raises(PtxError, match=r"st\.async"):
        sent(4, f"{instruction};")
