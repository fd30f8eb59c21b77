"""Rows of bytes and halves under masks, on processors with masked accesses of them and without."""

from __future__ import annotations

import numpy as np
import pytest
from vgpusim.codegen import emit_segment

from tests.vgpusim.codegen.harness import HEADER, run

COUNT = 1 << 10
_COPY = """.visible .entry k{name}(.param .u64 from, .param .u64 to, .param .u32 n)
{{ .reg .b64 %x<6>; .reg .b32 %r<6>; .reg .b16 %h<5>; .reg .pred %p;
ld.param.u64 %x0, [from]; ld.param.u64 %x1, [to]; ld.param.u32 %r0, [n];
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r4, %r1, %r2, %r3;
setp.{test} %p, %r4, %r0; @%p bra END;
mul.wide.s32 %x2, %r4, {nbytes}; add.s64 %x3, %x0, %x2; add.s64 %x4, %x1, %x2;
ld.global{kind} {values}, [%x3]; st.global{kind} [%x4], {values};
END: ret; }}
"""
_KINDS = {".u8": (1, "%h0"), ".u16": (2, "%h0"), ".v2.u8": (2, "{%h0, %h1}"), ".v4.u8": (4, "{%h0, %h1, %h2, %h3}"),
          ".v2.u16": (4, "{%h0, %h1}"), ".v4.u16": (8, "{%h0, %h1, %h2, %h3}")}  # fmt: skip


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("lacks_masks", [False, True])
def test_a_copy(kind: str, lacks_masks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole warps, parts of one, and none; the other elements keep their values."""
    monkeypatch.setattr(emit_segment, "lacks_masks", lambda nbits: lacks_masks)
    nbytes, values = _KINDS[kind]
    name = f"{kind.replace('.', '_')}_{int(lacks_masks)}"
    source = np.random.default_rng(5).integers(1, 256, COUNT * nbytes, dtype=np.uint8)
    for test, first, last in (("ge.s32", 0, COUNT - 77), ("lt.s32", 333, COUNT)):
        text = HEADER + _COPY.format(name=name, kind=kind, nbytes=nbytes, values=values, test=test)
        target = np.zeros_like(source)
        run(text, f"k{name}", COUNT // 128, 128, [source, target, last if first == 0 else first])
        expected = np.zeros_like(source)
        expected[first * nbytes : last * nbytes] = source[first * nbytes : last * nbytes]
        assert np.array_equal(target, expected)
