"""Grid-stride loops: blocks are compiled for all lanes and for some lanes; a limit is compared once for each warp."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np
import pytest

from tests.vgpusim.codegen.harness import HEADER, run

CONDITIONS = {
    "lt.s32 %p, %i, %n": (True, lambda i, n: i < n), "gt.s32 %p, %n, %i": (True, lambda i, n: i < n),
    "le.u32 %p, %i, %n": (True, lambda i, n: i <= n), "lo.u32 %p, %i, %n": (True, lambda i, n: i < n),
    "ge.s32 %p, %i, %n": (False, lambda i, n: i < n), "lt.u32 %p, %n, %i": (False, lambda i, n: i <= n),
    "hi.u32 %p, %i, %n": (False, lambda i, n: i <= n),
}  # fmt: skip


def kernel(condition: str, goes_on: bool, body: str, step: int) -> str:
    """Each thread counts its rounds, from its own number upwards, while the condition holds (`goes_on`) or does not."""
    return f"""{HEADER}.visible .entry k(.param .u64 out, .param .u64 in, .param .u32 n, .param .u32 start) {{
.reg .b32 %i, %t, %n, %rounds, %sum, %v, %o, %l; .reg .b64 %x<9>; .reg .pred %p, %q;
ld.param.u64 %x0, [out]; ld.param.u64 %x4, [in]; ld.param.u32 %n, [n]; ld.param.u32 %i, [start]; mov.u32 %t, %tid.x;
mov.u32 %l, 0; add.u32 %i, %i, %t; mov.u32 %rounds, 0; mov.u32 %sum, 0; setp.{condition};
@{"!" if goes_on else ""}%p bra $end;
$top: {body} add.u32 %rounds, %rounds, 1; add.u32 %i, %i, {step}; setp.{condition};
@{"" if goes_on else "!"}%p bra $top;
$end: mul.wide.u32 %x1, %t, 8; add.u64 %x2, %x0, %x1; st.global.v2.u32 [%x2], {{%rounds, %sum}}; ret; }}"""


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("threads", [64, 70])
def test_limits(condition: str, threads: int) -> None:
    """Rounds that all lanes, some lanes and no lanes take; indices on both sides of the wrap-around."""
    goes_on, below = CONDITIONS[condition]
    signed = ".s32" in condition
    text = kernel(condition, goes_on, "", 64)
    checked = 0
    for start, n in ((0, 0), (0, 64), (0, 200), (5, 1000), (-100, 31), (2**31 - 90, 2**31 - 1), (2**31 - 200, 40),
                     (2**32 - 150, 2**32 - 60), (2**32 - 40, 90)):  # fmt: skip
        out = np.zeros((threads, 2), np.uint32)
        expected = []
        for thread in range(threads):
            i, rounds = (start + thread) % 2**32, 0

            def value(x: int) -> int:
                return x - 2**32 if signed and x >= 2**31 else x

            while rounds <= 100 and below(value(i), value(n % 2**32)):
                i, rounds = (i + 64) % 2**32, rounds + 1
            expected.append(rounds)
        if max(expected) > 100:
            continue  # endless or too long
        checked += 1
        run(text, "k", 1, threads, [out, out, n % 2**32, start % 2**32])
        assert out[:, 0].tolist() == expected, (start, n)
    assert checked >= 5


def test_a_loop_reads_nothing_past_its_limit() -> None:
    """The row of the last iteration is partial; the page after it is inaccessible, so reading ahead would fault."""
    page, n, threads = mmap.PAGESIZE, 1000, 96
    memory = mmap.mmap(-1, 2 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    table = np.frombuffer(memory, np.uint32, n, page - 4 * n)
    table[:] = np.arange(n)
    body = """mul.wide.s32 %x5, %i, 4; add.u64 %x6, %x4, %x5; ld.global.u32 %v, [%x6]; add.u32 %sum, %sum, %v;
and.b32 %o, %v, 1; setp.eq.u32 %q, %o, 1; @%q add.u32 %l, %l, 1; add.u32 %sum, %sum, %l;"""
    out = np.zeros((threads, 2), np.uint32)
    child = os.fork()  # a fault ends the process
    if child == 0:
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(base + page), page, 0) == 0  # PROT_NONE
        run(kernel("lt.s32 %p, %i, %n", True, body, threads), "k", 1, threads, [out, table, n, 0])
        good = True
        for thread in range(threads):
            total = odd = 0
            for value in range(thread, n, threads):
                odd += value & 1
                total += value + odd
            good &= out[thread].tolist() == [len(range(thread, n, threads)), total]
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
