"""Registers that a warp saves at barriers: every register it needs afterwards, though not all at every barrier."""

from __future__ import annotations

import numpy as np
import pytest
from vgpusim.codegen import cfg, inline, liveness
from vgpusim.ptx.module import PtxModule

from tests.vgpusim.codegen.harness import HEADER, run

LOOP = """.visible .entry k(.param .u64 out, .param .u32 n) {
.reg .b32 %t, %n, %i, %sum, %once, %late, %a, %c; .reg .b64 %x<4>; .reg .pred %p; .shared .align 4 .b8 s[4096];
ld.param.u64 %x0, [out]; ld.param.u32 %n, [n]; mov.u32 %t, %tid.x; mad.lo.u32 %once, %t, 7, 1; mov.u32 %i, 0;
mov.u32 %sum, 0; mov.u32 %late, 5; setp.eq.u32 %p, %n, 0; shl.b32 %c, %t, 2; mov.u32 %a, s; add.u32 %a, %a, %c;
$top: st.shared.u32 [%a], %i; bar.sync 0;
ld.shared.u32 %c, [s]; add.u32 %sum, %sum, %c; add.u32 %sum, %sum, %once; BODY bar.sync BARRIER;
add.u32 %i, %i, 1; setp.lt.u32 %p, %i, %n; @%p bra $top;
mad.lo.u32 %sum, %late, 1000, %sum; mul.wide.u32 %x1, %t, 4; add.u64 %x2, %x0, %x1; st.global.u32 [%x2], %sum; ret; }"""


def test_what_does_not_change_in_a_loop_is_saved_once() -> None:
    module = PtxModule.parse(HEADER + LOOP.replace("BODY", "").replace("BARRIER", "0"))
    graph = cfg.build(inline.flatten(module, "k"))
    live = liveness.compute(graph)
    dirty = liveness.unsaved(graph, live)
    first, second = (i for i, block in enumerate(graph.blocks) if block.is_barrier)
    names = [{reg.name.split(".")[-1] for reg in live.names(dirty[index])} for index in (first, second)]
    assert {"%once", "%late", "%n", "%i", "%sum"} <= names[0]
    assert names[1] == {"%c", "%sum"}


@pytest.mark.parametrize("barrier", ["0", "1"])
@pytest.mark.parametrize(
    "body", ["", "setp.eq.u32 %p, %i, 2; @%p mov.u32 %late, %i;", "@!%p add.u32 %late, %late, %i;"]
)
@pytest.mark.parametrize("threads", [32, 96, 100])
def test_registers_across_barriers(barrier: str, body: str, threads: int) -> None:
    """Registers written before the loop, in each round or in some; barriers passed in step, and numbered barriers."""
    out, n = np.zeros(threads, np.uint32), 5
    run(HEADER + LOOP.replace("BODY", body).replace("BARRIER", barrier), "k", 2, threads, [out, n])
    late, p = 5, False
    for i in range(n):
        if "setp" in body:
            p = i == 2
            late = i if p else late
        elif body:
            late += 0 if p else i
        p = i + 1 < n
    sums = sum(range(n)) + n * (np.arange(threads) * 7 + 1)
    assert np.array_equal(out, sums + 1000 * late)
