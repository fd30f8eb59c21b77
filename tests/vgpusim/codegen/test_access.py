"""Misaligned accesses end with error 716, and the report names the access, its source line, the first thread and that
thread's address (GR7, GR8)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.vgpusim.codegen.harness import HEADER, run

_KERNEL = """.visible .entry k(.param .u64 p, .param .u32 at)
{{ .reg .b64 %x<6>; .reg .b32 %r<6>; .reg .b16 %h; .reg .pred %q; .shared .align 8 .b8 s[1024];
ld.param.u64 %x0, [p]; ld.param.u32 %r0, [at]; mov.u32 %r1, %tid.x; mov.u32 %r2, s; mov.u32 %r3, 0; mov.u16 %h, 0;
{body}
ret; }}
.file 1 "dir/x.cu"
"""


def bad(body: str, at: int, block: int = 64) -> list[tuple[int, bytes, int, tuple[int, ...], int]]:
    """Run the kernel. Returns the reports, with addresses relative to the start of the buffer."""
    buffer = np.zeros(1 << 12, np.uint64)
    events = run(HEADER + _KERNEL.format(body=body), "k", 2, block, [buffer, at], chunk=8)
    start = buffer.ctypes.data
    return [(result, what, address - start, cta, thread) for result, what, address, cta, thread in events.bad_accesses]


def test_store_of_a_row() -> None:
    """All lanes of the first warp are misaligned; the report names the first lane, with the line of .loc."""
    body = """cvt.u64.u32 %x1, %r0; add.u64 %x0, %x0, %x1; mad.wide.u32 %x2, %r1, 4, %x0;
.loc 1 12 3
st.global.u32 [%x2+8], %r1;"""
    result, what, address, cta, thread = bad(body, 2)[0]
    assert (result, address, cta, thread) == (716, 10, (0, 0, 0), 0)
    assert what == b"k: misaligned write of 4 bytes by `st.global.u32` (dir/x.cu:12; PTX line 9)"
    assert bad(body, 4) == []


@pytest.mark.parametrize(
    ("access", "nbytes", "word"),
    [("ld.global.u64 %x3, [%x2];", 8, "read"), ("ld.global.v2.u32 {%r4, %r5}, [%x2];", 8, "read"),
     ("atom.global.add.u32 %r4, [%x2], 1;", 4, "atomic"), ("red.global.add.u32 [%x2], 1;", 4, "atomic"),
     ("st.global.u16 [%x2], %h;", 2, "write"), ("ld.u32 %r4, [%x2];", 4, "read"),
     ("ld.volatile.global.u32 %r4, [%x2];", 4, "read")],
)  # fmt: skip
def test_one_lane(access: str, nbytes: int, word: str) -> None:
    """Only thread 37 is misaligned: its address is 8 * 37 + 1 bytes into the buffer."""
    body = f"""setp.eq.u32 %q, %r1, 37; selp.u32 %r3, 1, 0, %q; mad.wide.u32 %x2, %r1, 8, %x0; cvt.u64.u32 %x1, %r3;
add.u64 %x2, %x2, %x1; {access}"""
    found = bad(body, 0)
    assert [(result, address, cta, thread) for result, _, address, cta, thread in found] == [
        (716, 8 * 37 + 1, (0, 0, 0), 37),
        (716, 8 * 37 + 1, (1, 0, 0), 37),
    ]
    assert found[0][1].startswith(f"k: misaligned {word} of {nbytes} bytes by `".encode())


def test_lanes_that_do_not_act() -> None:
    body = "setp.eq.u32 %q, %r1, 0; cvt.u64.u32 %x1, %r1; add.u64 %x2, %x0, %x1; @%q ld.global.u64 %x3, [%x2];"
    assert bad(body, 0) == []
    assert [thread for *_, thread in bad(body.replace("%r1, 0;", "%r1, 3;"), 0)] == [3, 3]


def test_shared_memory() -> None:
    body = "add.u32 %r2, %r2, %r0; mad.lo.u32 %r2, %r1, 4, %r2; st.shared.u32 [%r2], %r1; ld.shared.u32 %r4, [%r2];"
    assert bad(body, 4) == []
    found = bad(body, 1)
    assert [result for result, *_ in found][:1] == [716]
    assert b"st.shared.u32" in found[0][1]


def test_the_warp_that_runs_is_noted() -> None:
    """The thread's record holds the block and warp that ran last, which a fault report names."""
    text = HEADER + _KERNEL.format(body="bar.sync 0;")
    assert run(text, "k", 3, 96, [np.zeros(8, np.uint64), 0], chunk=8).last_warp == ((2, 0, 0), 2)
