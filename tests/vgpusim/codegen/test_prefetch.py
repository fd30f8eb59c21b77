"""What is prefetched, by processor: rows that a loop's later warps load, and those of later blocks."""

from __future__ import annotations

import re

import pytest
from vgpusim.codegen import native
from vgpusim.codegen.compile import PtxModule, lower

from tests.vgpusim.codegen.harness import HEADER

_LOOP = """$top: mul.wide.s32 %x1, %i, 4; add.s64 %x2, %x0, %x1; ld.global.u32 %a, [%x2]; add.u32 %s, %s, %a;
add.s32 %i, %i, %step; setp.lt.s32 %p, %i, %n; @%p bra $top; st.shared.u32 [0], %s;"""
_ONCE = "mul.wide.s32 %x1, %i, 4; add.s64 %x2, %x0, %x1; ld.global.u32 %s, [%x2]; st.global.u32 [%x2+4096], %s;"


def fetches(body: str) -> list[tuple[bool, int]]:
    """Of each prefetch: whether it is for a store, and how near it brings its line (3: into the first cache)."""
    text = HEADER + (
        ".visible .entry k(.param .u64 from, .param .u32 n) { .reg .b32 %i, %n, %a, %s, %step; .reg .b64 %x<3>;"
        ".reg .pred %p; ld.param.u64 %x0, [from]; ld.param.u32 %n, [n]; mov.u32 %i, %tid.x; mov.u32 %s, 0;"
        f"mov.u32 %step, %ntid.x; {body} ret; }}"
    )
    whole, _ = lower(PtxModule.parse(text), "k", (64, 1, 1))
    found = re.findall(r"call void @llvm\.prefetch\.p0\(ptr [^,]+, i32 (\d), i32 (\d), i32 1\)", whole)
    return [(write == "1", int(near)) for write, near in found]


@pytest.mark.parametrize(("amd", "follows"), [(True, True), (True, False), (False, False)])
def test_rows_of_later_warps(amd: bool, follows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """AMD's get a loop's rows of other warps in the second cache; one that follows rows by itself gets no others."""
    monkeypatch.setattr(native, "is_amd", lambda: amd)
    monkeypatch.setattr(native, "follows_rows", lambda: follows)
    assert set(fetches(_LOOP)) == ({(False, 3), (False, 2)} if amd else {(False, 3)})
    assert set(fetches(_ONCE)) == (set() if follows else {(False, 3), (True, 3)})
