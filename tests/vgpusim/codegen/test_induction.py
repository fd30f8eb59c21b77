"""By how much the address of a loop's load moves, for prefetching."""

from __future__ import annotations

import pytest
from vgpusim.codegen import cfg, inline
from vgpusim.codegen.compile import lower
from vgpusim.codegen.induction import Induction
from vgpusim.ptx import ir
from vgpusim.ptx.module import PtxModule

from tests.vgpusim.codegen.harness import HEADER


def step(instruction: str, by: str = "%step") -> tuple[str | int, int] | None:
    """What each iteration adds to the address: a register or a number, and its factor. `instruction` makes %s of the
    counter %i, to which each iteration adds `by`."""
    text = HEADER + (
        ".visible .entry k(.param .u64 from, .param .u32 n) {"
        ".reg .b32 %i, %n, %a, %s, %step; .reg .b64 %x<3>; .reg .pred %p;"
        "ld.param.u64 %x0, [from]; ld.param.u32 %n, [n]; mov.u32 %i, %tid.x; mov.u32 %step, %ntid.x;"
        f"$top: {instruction} cvt.u64.u32 %x1, %s; add.u64 %x2, %x0, %x1; ld.global.u32 %a, [%x2];"
        f"add.u32 %i, %i, {by}; setp.lt.u32 %p, %i, %n; @%p bra $top; ret; }}"
    )
    graph = cfg.build(inline.flatten(PtxModule.parse(text), "k"))
    (loop,) = graph.loops
    (load,) = (ins for ins in graph.blocks[loop[0]].all() if ins.opcode == "ld")
    address = load.operands[1]
    assert isinstance(address, ir.Address)
    assert isinstance(address.base, ir.Reg)
    found = Induction(graph).step(address.base, loop[0])
    if found is None:
        return None
    moved, factor = found
    return (moved.name.split(".")[-1] if isinstance(moved, ir.Reg) else moved.value), factor


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


def test_a_constant_step() -> None:
    assert step("mul.lo.s32 %s, %i, 12;", by="16") == (16, 12)
    assert step("shl.b32 %s, %i, 2;", by="-4") == (-4, 4)


def rows(by: str, address: str) -> str:
    """Lanes' rows, two of a warp, whose distance is known at run time alone; a step of `by` elements. `address` makes
    %x1 of the index %r4."""
    return HEADER + (
        ".visible .entry k(.param .u64 from, .param .u32 pitch, .param .u32 n) {"
        ".reg .b32 %r<8>; .reg .b64 %x<7>; .reg .f32 %f<3>; .reg .pred %p;"
        "ld.param.u64 %x0, [from]; ld.param.u32 %r0, [pitch]; ld.param.u32 %r1, [n];"
        "mov.u32 %r2, %tid.x; mov.u32 %r3, %tid.y; mad.lo.s32 %r4, %r3, %r0, %r2; mov.f32 %f0, 0f00000000;"
        f"$top: {address} add.s64 %x2, %x0, %x1; ld.global.f32 %f1, [%x2]; add.f32 %f0, %f0, %f1;"
        f"add.s32 %r4, %r4, {by}; setp.lt.s32 %p, %r4, %r1; @%p bra $top; st.global.f32 [%x0], %f0; ret; }}"
    )


@pytest.mark.parametrize(("by", "fetched"), [("16", True), ("-16", True), ("15", False)])
def test_rows_of_the_next_iteration_are_fetched_if_they_are_other_lines(by: str, fetched: bool) -> None:
    made = lower(PtxModule.parse(rows(by, "mul.wide.s32 %x1, %r4, 4;")), "k", (16, 16, 1))[0]
    assert ("call void @llvm.prefetch" in made) is fetched
    assert ("i32 0, i32 2, i32 1)" in made) is fetched  # into the second cache


@pytest.mark.parametrize("by", ["16", "%r0"])
def test_steps_beyond_64_bits_are_not_followed(by: str) -> None:
    far = (
        "cvt.s64.s32 %x4, %r4; mul.lo.s64 %x5, %x4, 0x7fffffffffffffff; mul.lo.s64 %x6, %x5, 0x7fffffffffffffff;"
        "add.s64 %x1, %x3, %x6;"
    )
    text = rows(by, far).replace("mad.lo.s32 %r4, %r3, %r0, %r2;", "mad.lo.s32 %r5, %r3, %r0, %r2; mov.u32 %r4, 0;")
    text = text.replace("$top:", "mul.wide.s32 %x3, %r5, 4; $top:")
    assert "call void @llvm.prefetch" not in lower(PtxModule.parse(text), "k", (16, 16, 1))[0]
