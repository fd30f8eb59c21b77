"""By how much the address of a loop's load moves, for prefetching."""

from __future__ import annotations

import pytest
from vgpusim.codegen import cfg, inline
from vgpusim.codegen.induction import Induction
from vgpusim.ptx import ir
from vgpusim.ptx.module import PtxModule

from tests.vgpusim.codegen.harness import HEADER


def step(instruction: str) -> tuple[str, int] | None:
    """What each iteration adds to the address: a register and its factor. `instruction` makes %s of the counter %i."""
    text = HEADER + (
        ".visible .entry k(.param .u64 from, .param .u32 n) {"
        ".reg .b32 %i, %n, %a, %s, %step; .reg .b64 %x<3>; .reg .pred %p;"
        "ld.param.u64 %x0, [from]; ld.param.u32 %n, [n]; mov.u32 %i, %tid.x; mov.u32 %step, %ntid.x;"
        f"$top: {instruction} cvt.u64.u32 %x1, %s; add.u64 %x2, %x0, %x1; ld.global.u32 %a, [%x2];"
        "add.u32 %i, %i, %step; setp.lt.u32 %p, %i, %n; @%p bra $top; ret; }"
    )
    graph = cfg.build(inline.flatten(PtxModule.parse(text), "k"))
    (loop,) = graph.loops
    (load,) = (ins for ins in graph.blocks[loop[0]].all() if ins.opcode == "ld")
    address = load.operands[1]
    assert isinstance(address, ir.Address)
    assert isinstance(address.base, ir.Reg)
    found = Induction(graph).step(address.base, loop[0])
    return (found[0].name.split(".")[-1], found[1]) if found else None


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("shl.b32 %s, %i, 2;", ("%step", 4)),
        ("mul.lo.s32 %s, %i, -12;", ("%step", -12)),
        ("mad.lo.u32 %s, %i, 8, %n;", ("%step", 8)),
        ("mad.lo.u32 %s, %i, 8, %i;", None),
        ("mul.lo.u32 %s, %i, %i;", None),
        ("add.u32 %s, %i, %n;", ("%step", 1)),
        ("mov.u32 %s, %n;", None),
        ("shl.b32 %s, %i, -1;", None),
        ("shl.b32 %s, %i, 0xffffffff;", None),
        ("xor.b32 %s, %i, 1;", None),
    ],
)
def test_steps(instruction: str, expected: tuple[str, int] | None) -> None:
    assert step(instruction) == expected
