"""Registers that hold one constant: reads use it, also after barriers, and LLVM knows what follows from it."""

from __future__ import annotations

import numpy as np
import pytest
from vgpusim.codegen import cfg, constants, inline, native
from vgpusim.codegen import compile as compiler
from vgpusim.codegen.induction import Induction
from vgpusim.ptx import ir
from vgpusim.ptx.module import PtxModule

from tests.vgpusim.codegen.harness import HEADER, run

# A histogram of bytes as nvcc writes it: the place of the bins is in a register from before the first barrier on.
HISTOGRAM = (
    HEADER
    + """.visible .entry k(.param .u64 bytes, .param .u32 n, .param .u64 out) {
.reg .b32 %t, %n, %i, %bins, %own, %zero, %step, %a, %c; .reg .b64 %x<8>; .reg .pred %p; .reg .b16 %b;
.shared .align 4 .b8 s[1024];
ld.param.u64 %x0, [bytes]; ld.param.u32 %n, [n]; ld.param.u64 %x1, [out]; mov.u32 %t, %tid.x; mov.u32 %bins, s;
shl.b32 %c, %t, 2; add.u32 %own, %bins, %c; mov.u32 %zero, 0; st.shared.u32 [%own], %zero; bar.sync 0;
mov.u32 %step, %ntid.x; mov.u32 %i, %t;
$top: cvt.u64.u32 %x2, %i; add.u64 %x3, %x0, %x2; ld.global.u8 %b, [%x3]; mul.wide.u16 %c, %b, 4;
add.u32 %a, %bins, %c; atom.shared.add.u32 %c, [%a], 1; add.u32 %i, %i, %step; setp.lt.u32 %p, %i, %n; @%p bra $top;
bar.sync 0; ld.shared.u32 %c, [%own]; mul.wide.u32 %x4, %t, 4; add.u64 %x5, %x1, %x4; st.global.u32 [%x5], %c; ret; }"""
)

MISALIGNED = b"misaligned atomic"  # in the object code of a kernel that may have to report one


def graph_of(text: str) -> tuple[cfg.Graph, dict[str, ir.Operand]]:
    program = inline.flatten(PtxModule.parse(text), "k")
    graph = cfg.build(program)
    return graph, {reg.name.split(".")[-1]: source for reg, source in constants.find(program, graph).items()}


def test_a_histogram_knows_where_its_bins_are() -> None:
    graph, found = graph_of(HISTOGRAM)
    assert {"%bins", "%zero"} == set(found)
    (loop,) = graph.loops
    (load,) = (ins for ins in graph.blocks[loop[0]].all() if ins.opcode == "ld")
    address = load.operands[1]
    assert isinstance(address, ir.Address)
    assert isinstance(address.base, ir.Reg)
    step = Induction(graph).step(address.base, loop[0])
    assert step is not None
    assert (step[0].name.split(".")[-1], step[1]) == ("%step", 1)
    assert MISALIGNED not in native.assemble(compiler.lower(PtxModule.parse(HISTOGRAM), "k", (256, 1, 1))[0])
    unknown = HISTOGRAM.replace(
        "mov.u32 %bins, s;", "mov.u32 %bins, s; add.u32 %bins, %bins, %n; sub.u32 %bins, %bins, %n;"
    )
    assert MISALIGNED in native.assemble(compiler.lower(PtxModule.parse(unknown), "k", (256, 1, 1))[0])


@pytest.mark.parametrize("n", [256, 1000, 3 * 256])
def test_a_histogram_counts_bytes(n: int) -> None:
    data, out = np.random.default_rng(n).integers(0, 256, n, np.uint8), np.zeros(256, np.uint32)
    run(HISTOGRAM, "k", 1, 256, [data, n, out])
    assert np.array_equal(out, np.bincount(data, minlength=256))


@pytest.mark.parametrize(
    "body", ["@%q mov.u32 %zero, 5;", "mov.u32 %zero, 5;", "add.u32 %zero, %zero, 1;", "mov.u32 %zero, %t;"]
)
def test_registers_that_change_are_no_constants(body: str) -> None:
    changed = HISTOGRAM.replace(".reg .pred %p;", ".reg .pred %p, %q; ").replace(
        "bar.sync 0;\nmov", f"setp.gt.u32 %q, %t, 3; {body} bar.sync 0;\nmov"
    )
    assert "%zero" not in graph_of(changed)[1]
    assert "%bins" in graph_of(changed)[1]


def test_a_constant_that_only_some_lanes_define() -> None:
    text = HEADER + (
        ".visible .entry k(.param .u64 out) { .reg .b32 %t, %a, %b; .reg .b64 %x<4>; .reg .pred %p;"
        "ld.param.u64 %x0, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %x1, %t, 4; add.u64 %x2, %x0, %x1; mov.u32 %b, 9;"
        "setp.gt.u32 %p, %t, 40; @%p bra $else; mov.u32 %a, -7; add.u32 %b, %a, %t; $else: bar.sync 0;"
        "st.global.u32 [%x2], %b; ret; }"
    )
    out = np.zeros(64, np.int32)
    run(text, "k", 1, 64, [out])
    t = np.arange(64)
    assert np.array_equal(out, np.where(t > 40, 9, t - 7))
