"""What the sanitizer's kernels remember of their accesses."""

from __future__ import annotations

import re

import pytest
from vgpusim.codegen import compile as compiler
from vgpusim.ptx.module import PtxModule

from tests.vgpusim.codegen.harness import HEADER


def test_accesses_through_one_register_share_the_range_that_needs_no_check() -> None:
    """An unrolled loop that takes turns between two allocations checks each of them once."""
    rounds = "ld.global.u32 %a, [%x0];\nadd.u32 %b, %b, %a;\nst.global.u32 [%x1], %b;\n" * 9
    text = HEADER + (
        ".visible .entry k(.param .u64 from, .param .u64 to) { .reg .b32 %a, %b; .reg .b64 %x<2>;"
        f"ld.param.u64 %x0, [from]; ld.param.u64 %x1, [to]; mov.u32 %b, 0;\n{rounds} ret; }}"
    )
    watched = compiler.lower(PtxModule.parse(text), "k", (64, 1, 1), watched=True)[0]
    sites = re.findall(r"i32 (\d+), i32 (\d+), \[5 x i32\]", watched)  # each access's kind and range
    assert len(sites) == 18
    assert len({number for _, number in sites}) == len(set(sites)) == 2


@pytest.mark.parametrize(
    ("access", "pattern"),
    [
        ("ld.global.u32 %a, [%x];", 7),
        ("st.global.u32 [%x], %a;", 7),
        ("atom.global.add.u32 %a, [%x], 1;", 0),
        ("red.global.add.u32 [%x], 1;", 0),
        ("ld.volatile.global.u32 %a, [%x];", 0),
        ("st.release.gpu.global.u32 [%x], %a;", 0),
    ],
)
def test_only_plain_accesses_have_a_pattern(access: str, pattern: int) -> None:
    """What has one, racecheck notes as a plain load or store: rows of counters would be races."""
    text = HEADER + (
        ".visible .entry k(.param .u64 at) { .reg .b32 %a, %t; .reg .b64 %x, %y;"
        f"mov.u32 %t, %tid.x; ld.param.u64 %y, [at]; mad.wide.u32 %x, %t, 4, %y; mov.u32 %a, %t; {access} ret; }}"
    )
    watched = compiler.lower(PtxModule.parse(text), "k", (64, 1, 1), watched=True)[0]
    assert re.findall(r"@site\.\w+ = .*i8 (\d+) }", watched) == [str(pattern)]
