"""Misaligned accesses end with error 716, and the report names the access, its source line, the first thread and that
thread's address (GR7, GR8)."""

from __future__ import annotations

import numpy as np
import pytest
from vgpusim.codegen import native
from vgpusim.codegen.compile import PtxModule, lower

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


@pytest.mark.parametrize("index", ["%r1", "%r4"])  # the same in each warp, or known at run time alone
def test_addresses_of_local_memory_in_32_bits(index: str) -> None:
    """The local window is small, so programs may keep its addresses in 32 bits; here the real ones need 64."""
    body = f"""{{ .local .align 8 .b8 own[256]; .reg .b64 %wide; ld.global.u32 %r4, [%x0];
    mov.u32 %r3, own; mad.lo.u32 %r3, {index}, 4, %r3; st.local.u32 [%r3], %r1; ld.local.u32 %r5, [%r3];
    cvt.u64.u32 %wide, %r3; cvta.local.u64 %wide, %wide; ld.u32 %r3, [%wide]; add.u32 %r5, %r5, %r3;
    mad.wide.u32 %x2, %r1, 4, %x0; st.global.u32 [%x2+64], %r5; }}"""
    buffer = np.zeros(1 << 9, np.uint32)
    events = run(HEADER + _KERNEL.format(body=body), "k", 1, 64, [buffer, 0])
    assert not events.bad_accesses
    assert buffer[16:80].tolist() == [2 * thread for thread in range(64)]


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


_LOCAL = ".local .align 16 .b8 l[64]; mov.u64 %x1, l; cvt.u64.u32 %x2, %r0; add.u64 %x1, %x1, %x2;"


@pytest.mark.parametrize(
    ("body", "nbytes", "word"),
    [("st.shared.u32 [%r2], %r1;", 4, "write"), ("ld.shared.u32 %r4, [%r2];", 4, "read"),
     ("ld.shared.u16 %h, [%r2];", 2, "read"), ("ld.shared.v2.u32 {%r4, %r5}, [%r2];", 8, "read"),
     ("st.shared.v4.u32 [%r2], {%r1, %r1, %r1, %r1};", 16, "write"), ("ld.volatile.shared.u64 %x3, [%r2];", 8, "read"),
     ("mad.lo.u32 %r2, %r1, 16, %r2; ld.shared.v2.u32 {%r4, %r5}, [%r2];", 8, "read"),
     ("atom.shared.add.u32 %r4, [%r2], 1;", 4, "atomic"), ("red.shared.max.u64 [%r2], %x0;", 8, "atomic"),
     ("atom.shared.cas.b32 %r4, [%r2], 0, 1;", 4, "atomic"),
     ("cvt.u64.u32 %x1, %r2; cvta.shared.u64 %x1, %x1; ld.u32 %r4, [%x1];", 4, "read"),
     (f"{_LOCAL} st.local.u32 [%x1], %r1;", 4, "write"), (f"{_LOCAL} ld.local.u64 %x3, [%x1+8];", 8, "read"),
     (f"{_LOCAL} st.local.v2.u32 [%x1], {{%r1, %r1}};", 8, "write"),
     (f"{_LOCAL} cvta.local.u64 %x1, %x1; ld.u16 %h, [%x1];", 2, "read")],
)  # fmt: skip
def test_offset_known_at_run_time(body: str, nbytes: int, word: str) -> None:
    """Every thread's access to its own shared or local memory is `at` bytes off."""
    body = f"add.u32 %r2, %r2, %r0; {body}"
    assert bad(body, 16) == []
    found = bad(body, nbytes // 2)
    assert [(result, thread) for result, _, _, _, thread in found] == [(716, thread) for thread in range(64)] * 2
    assert found[0][1].startswith(f"k: misaligned {word} of {nbytes} bytes by `".encode())


def test_local_memory_at_an_index_of_each_thread() -> None:
    body = ".local .align 8 .b8 l[64]; mov.u64 %x1, l; mad.wide.u32 %x1, %r4, 4, %x1; cvt.u64.u32 %x2, %r3;"
    body = f"and.b32 %r4, %r1, 7; setp.eq.u32 %q, %r1, 37; selp.u32 %r3, %r0, 0, %q; {body} add.u64 %x1, %x1, %x2;"
    body += "ld.local.u32 %r5, [%x1];"
    assert bad(body, 4) == []
    assert [(result, thread) for result, _, _, _, thread in bad(body, 3)] == [(716, 37)] * 2


@pytest.mark.parametrize(
    "access",
    ["ld.shared.u32 %r4, [s+{}];", "st.shared.v2.u32 [s+{}], {{%r1, %r1}};", "atom.shared.add.u32 %r4, [s+{}], 1;",
     "st.local.u32 [l+{}], %r1;", "ld.local.v4.u32 {{%r2, %r3, %r4, %r5}}, [l+{}];"],
)  # fmt: skip
def test_offset_in_a_named_variable(access: str) -> None:
    assert bad(".local .align 16 .b8 l[64];" + access.format(16), 0) == []
    found = bad(".local .align 16 .b8 l[64];" + access.format(2), 0)
    assert [(result, thread) for result, _, _, _, thread in found] == [(716, thread) for thread in range(64)] * 2
    guarded = "setp.eq.u32 %q, %r1, 37; .local .align 16 .b8 l[64]; @%q " + access.format(2)
    assert [thread for *_, thread in bad(guarded, 0)] == [37, 37]


def test_variable_of_less_alignment_than_its_access() -> None:
    """Where such a variable lies is the compiler's choice: its own first bytes are not the program's mistake."""
    for space in "shared", "local":
        declared = f".{space} .align 4 .b8 first[4]; .{space} .align 4 .b8 v[32];"
        assert bad(f"{declared} mov.b32 %r4, first; ld.{space}.v2.u32 {{%r4, %r5}}, [v+8];", 0) == []
        assert {result for result, *_ in bad(f"{declared} ld.{space}.v2.u32 {{%r4, %r5}}, [v+2];", 0)} == {716}


def test_the_warp_that_runs_is_noted() -> None:
    """The thread's record holds the block and warp that ran last, which a fault report names."""
    text = HEADER + _KERNEL.format(body="bar.sync 0;")
    assert run(text, "k", 3, 96, [np.zeros(8, np.uint64), 0], chunk=8).last_warp == ((2, 0, 0), 2)


@pytest.mark.parametrize("few", [True, False])
def test_sums_before_a_check(few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where registers are few, the path that reports an access uses the sum that the block has made, and only the last
    of a chain, so that LLVM does not make it behind the check."""
    monkeypatch.setattr(native, "has_few_registers", lambda: few)
    body = """{ .reg .f32 %f<4>; mad.wide.u32 %x2, %r1, 4, %x0; ld.global.f32 %f0, [%x2];
    fma.rn.f32 %f1, %f0, %f0, %f0; fma.rn.f32 %f2, %f1, %f0, %f0; ld.global.u32 %r4, [%x0]; cvt.u64.u32 %x3, %r4;
    add.u64 %x4, %x2, %x3; ld.global.f32 %f3, [%x4]; add.f32 %f3, %f3, %f2; st.global.f32 [%x2], %f3; }"""
    text = HEADER + _KERNEL.format(body=body)
    lines = lower(PtxModule.parse(text), "k", (64, 1, 1))[0].splitlines()
    kept = [line for line in lines if "store volatile <32 x i32>" in line]
    assert len(kept) == 2 * few  # of %f2, at the checks of %x0 and of %x4
    buffer = np.ones(128, np.float32)
    buffer[:1] = 0
    run(text, "k", 1, 64, [buffer, 0])
    assert buffer[:64].tolist() == [0.0] + [4.0] * 63
