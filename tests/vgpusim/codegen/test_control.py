"""Divergence, barriers, calls, and the services that kernels call."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from vgpusim.codegen.compile import PtxError, UnsupportedInstruction

from tests.vgpusim.codegen.harness import HEADER, run

THREADS = """.reg .b32 %t<9>, %r<30>; .reg .b64 %x<20>; .reg .pred %p<20>;
ld.param.u64 %x0, [out]; mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mov.u32 %t2, %ntid.x; mad.lo.u32 %t3, %t1, %t2,
%t0; mad.wide.u32 %x1, %t3, 4, %x0;
"""


def threads(body: str, grid: int = 3, block: int = 50, head: str = "", declare: str = "") -> np.ndarray:
    """Run `body`, which leaves a .u32 in %r0; %t0 is the thread, %t1 the CTA, %t3 the thread in the grid."""
    out = np.full(grid * block, 0xDEAD, np.uint32)
    text = f"{HEADER}{head}.visible .entry k(.param .u64 out) {{ {THREADS} {declare} mov.u32 %r0, 0;\n{body}\n"
    events = run(text + "$end: st.global.u32 [%x1], %r0; ret; }", "k", grid, block, [out])
    assert not events.failed
    return out


def test_if_else_with_values_across() -> None:
    """A register written on both sides of a branch, and one that only one side overwrites."""
    got = threads("""
and.b32 %r1, %t3, 3; setp.eq.u32 %p0, %r1, 1; mov.u32 %r2, 7; mov.u32 %r3, 100;
@%p0 bra $then; mov.u32 %r2, 20; add.u32 %r0, %r3, 1; bra $join;
$then: mov.u32 %r3, 5; add.u32 %r0, %r2, %r3;
$join: add.u32 %r0, %r0, %r2; mad.lo.u32 %r0, %r3, 1000, %r0;""")
    for t in range(150):
        r2, r3, r0 = (7, 5, 12) if t % 4 == 1 else (20, 100, 101)
        assert got[t] == r0 + r2 + 1000 * r3


def test_loops_with_divergent_trip_counts_and_breaks() -> None:
    got = threads("""
mov.u32 %r1, 0; mov.u32 %r4, 0;
$outer: mov.u32 %r2, 0;
$inner: setp.gt.u32 %p0, %r2, %t0; @%p0 bra $next;
add.u32 %r0, %r0, 1; add.u32 %r2, %r2, 3; and.b32 %r3, %r0, 31; setp.eq.u32 %p1, %r3, 17; @%p1 bra $out;
setp.lt.u32 %p2, %r2, 40; @%p2 bra $inner;
$next: add.u32 %r1, %r1, 1; setp.lt.u32 %p3, %r1, 5; @%p3 bra $outer;
$out: mad.lo.u32 %r0, %r1, 1000, %r0; mad.lo.u32 %r0, %r2, 100000, %r0;""")
    for t in range(150):
        tid, r0, r1, r2, done = t % 50, 0, 0, 0, False
        while not done:
            r2 = 0
            while True:
                if r2 > tid:
                    break
                r0, r2 = r0 + 1, r2 + 3
                if r0 & 31 == 17:
                    done = True
                    break
                if r2 >= 40:
                    break
            if done:
                break
            r1 += 1
            if r1 >= 5:
                done = True
        assert got[t] == r0 + 1000 * r1 + 100000 * r2, t


def test_uniform_loop_in_divergent_code() -> None:
    got = threads("""
setp.lt.u32 %p0, %t0, 13; @!%p0 bra $end; mov.u32 %r1, 0;
$loop: add.u32 %r0, %r0, %t0; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 10; @%p1 bra $loop;""")
    assert got.tolist() == [10 * t if t < 13 else 0 for t in range(50)] * 3


def test_early_exit_and_guarded_ret() -> None:
    got = threads("setp.lt.u32 %p0, %t0, 20; @%p0 exit; setp.gt.u32 %p1, %t0, 40; @%p1 ret; mov.u32 %r0, 4;")
    assert got.tolist() == [0xDEAD] * 20 + [4] * 21 + [0xDEAD] * 9 + ([0xDEAD] * 20 + [4] * 21 + [0xDEAD] * 9) * 2


def test_indexed_branch() -> None:
    got = threads("""
rem.u32 %r1, %t0, 3; $table: .branchtargets $a, $b, $c; brx.idx %r1, $table;
$a: mov.u32 %r0, 10; bra $end;
$b: mov.u32 %r0, 11;
$c: add.u32 %r0, %r0, 100;""")
    assert got.tolist() == [[10, 111, 100][t % 3] for t in range(50)] * 3


def test_irreducible_control_flow() -> None:
    """Two loop entries, taken by different lanes."""
    got = threads("""
and.b32 %r1, %t0, 1; setp.eq.u32 %p0, %r1, 1; mov.u32 %r2, 0; @%p0 bra $b;
$a: add.u32 %r0, %r0, 1;
$b: add.u32 %r0, %r0, 10; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %t0; @%p1 bra $a;""")
    for t in range(50):
        rounds = max(1, t)
        assert got[t] == 10 * rounds + (rounds - (1 if t & 1 else 0))


@pytest.mark.parametrize("block", [32, 50, 256])
def test_barrier_exchanges_through_shared_memory(block: int) -> None:
    """In every round each thread passes its value to its neighbour."""
    got = threads(f"""
.shared .u32 s[256]; mov.u32 %r0, %t0; mov.u32 %r5, s; shl.b32 %r6, %t0, 2; add.u32 %r6, %r6, %r5; mov.u32 %r9, 0;
add.u32 %r7, %t0, 1; rem.u32 %r7, %r7, {block}; shl.b32 %r8, %r7, 2; add.u32 %r8, %r8, %r5;
$loop: st.shared.u32 [%r6], %r0; bar.sync 0; ld.shared.u32 %r0, [%r8]; bar.sync 0;
add.u32 %r9, %r9, 1; setp.lt.u32 %p0, %r9, 5; @%p0 bra $loop;""", 2, block)  # fmt: skip
    assert got.tolist() == [(t + 5) % block for t in range(block)] * 2


def test_barrier_in_a_loop_that_warps_leave_at_different_times() -> None:
    """Warp w takes part in w + 1 rounds and exits; the barrier must not wait for it afterwards."""
    got = threads(
        """
mov.u32 %r1, %warpid; $loop: bar.sync 0; add.u32 %r0, %r0, 1; setp.gt.u32 %p0, %r0, %r1; @!%p0 bra $loop;""",
        1,
        128,
    )

    assert got.tolist() == [t // 32 + 1 for t in range(128)]


def test_barrier_after_divergent_code_keeps_registers() -> None:
    got = threads("""
.shared .u32 s[64]; mul.lo.u32 %r1, %t0, 3; setp.lt.u32 %p0, %t0, 7; mov.u32 %r2, 1;
@%p0 bra $join; add.u32 %r2, %t0, 50; $join: mov.u32 %r3, s; mad.lo.u32 %r3, %t0, 4, %r3; st.shared.u32 [%r3], %r2;
barrier.sync 0; sub.u32 %r4, 49, %t0; mov.u32 %r3, s; mad.lo.u32 %r3, %r4, 4, %r3; ld.shared.u32 %r0, [%r3];
add.u32 %r0, %r0, %r1;""")
    for t in range(50):
        other = 49 - t
        assert got[t] == (1 if other < 7 else other + 50) + 3 * t


def test_named_barriers_and_arrive() -> None:
    """Warp 0 produces and arrives; warp 1 waits on barrier 1 for both: 64 threads."""
    got = threads("""
.shared .u32 s[32]; mov.u32 %r1, %warpid; setp.eq.u32 %p0, %r1, 0; mov.u32 %r5, s; and.b32 %r6, %t0, 31;
mad.lo.u32 %r6, %r6, 4, %r5; @!%p0 bra $consume;
mul.lo.u32 %r2, %t0, 11; st.shared.u32 [%r6], %r2; bar.arrive 1, 64; bra $end;
$consume: bar.sync 1, 64; ld.shared.u32 %r0, [%r6];""", 1, 64)  # fmt: skip
    assert got.tolist() == [0] * 32 + [11 * t for t in range(32)]


def test_barrier_reductions() -> None:
    got = threads("""
setp.lt.u32 %p0, %t0, 37; bar.red.popc.u32 %r0, 0, %p0; bar.red.or.pred %p1, 0, %p0; bar.red.and.pred %p2, 0, %p0;
setp.lt.u32 %p3, %t0, 100; barrier.red.and.pred %p4, 0, %p3; @%p1 add.u32 %r0, %r0, 1000; @%p2 add.u32 %r0, %r0, 2000;
@%p4 add.u32 %r0, %r0, 4000;""")
    assert (got == 37 + 1000 + 4000).all()


def test_barrier_reductions_by_a_number_that_the_compiler_does_not_know() -> None:
    """As in NCCL's send and receive, each pair of warps has a barrier; each thread computes the barrier's number."""
    got = threads("""
mul.lo.u32 %r4, %t0, %t0; shr.u32 %r4, %r4, 31;
shr.u32 %r1, %t0, 6; add.u32 %r1, %r1, 3; add.u32 %r1, %r1, %r4; mov.u32 %r2, 64;
setp.eq.u32 %p0, %t0, 70;
barrier.red.or.pred %p1, %r1, %r2, %p0; barrier.red.popc.u32 %r3, %r1, %r2, %p1;
selp.u32 %r0, 1000, 0, %p1; add.u32 %r0, %r0, %r3;""", 1, 128)  # fmt: skip
    assert got.tolist() == [0] * 64 + [1064] * 64


def test_barrier_deadlock_is_reported() -> None:
    text = HEADER + ".visible .entry k() { bar.sync 1, 96; ret; }"
    events = run(text, "k", 1, 64, [])
    assert events.failed
    assert events.failed[0][0] == 719


def test_spin_lock_inside_a_warp() -> None:
    """Each lane locks, adds to a plain counter and unlocks: this needs fairness between lanes."""
    lock, count = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    text = (
        HEADER
        + """.visible .entry k(.param .u64 lock, .param .u64 count) {
.reg .b32 %r<9>; .reg .b64 %x<4>; .reg .pred %p<3>; ld.param.u64 %x0, [lock]; ld.param.u64 %x1, [count]; mov.u32 %r3, 0;
$again:
$spin: atom.global.cas.b32 %r0, [%x0], 0, 1; setp.ne.u32 %p0, %r0, 0; @%p0 bra $spin;
ld.global.u32 %r1, [%x1]; add.u32 %r1, %r1, 1; st.global.u32 [%x1], %r1; membar.gl; atom.global.exch.b32 %r2, [%x0], 0;
add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 3; @%p1 bra $again;
ret; }"""
    )
    run(text, "k", 2, 48, [lock, count])
    assert count[0] == 2 * 48 * 3
    assert lock[0] == 0


def test_block_shapes() -> None:
    """Thread numbers of 2-D and 3-D blocks, with rows shorter and longer than a warp."""
    text = (
        HEADER
        + """.visible .entry k(.param .u64 out) {
.reg .b32 %r<12>; .reg .b64 %x<4>; ld.param.u64 %x0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2,
%tid.z; mov.u32 %r3, %ntid.x; mov.u32 %r4, %ntid.y; mad.lo.u32 %r5, %r2, %r4, %r1; mad.lo.u32 %r5, %r5, %r3, %r0;
mov.u32 %r6, %ctaid.x; mov.u32 %r7, %ctaid.y; mov.u32 %r8, %nctaid.x; mad.lo.u32 %r6, %r7, %r8, %r6;
mov.u32 %r9, %ntid.z; mul.lo.u32 %r9, %r9, %r4; mul.lo.u32 %r9, %r9, %r3; mad.lo.u32 %r5, %r6, %r9, %r5;
shl.b32 %r2, %r2, 20; shl.b32 %r1, %r1, 10; or.b32 %r0, %r0, %r1; or.b32 %r0, %r0, %r2;
mad.wide.u32 %x1, %r5, 4, %x0; st.global.u32 [%x1], %r0; ret; }"""
    )
    for block in ((7, 5, 3), (32, 4, 1), (64, 2, 2), (1, 33, 1), (48, 3, 1)):
        n = block[0] * block[1] * block[2]
        out = np.zeros(n * 6, np.uint32)
        run(text, "k", (3, 2, 1), block, [out])
        t = np.arange(n)
        x, y, z = t % block[0], t // block[0] % block[1], t // (block[0] * block[1])
        assert np.array_equal(out.reshape(6, n), np.tile(x | y << 10 | z << 20, (6, 1)).astype(np.uint32)), block


FUNCTIONS = """
.func (.param .b32 result) triple(.param .b32 x) { .reg .b32 %r<3>; .reg .pred %p;
ld.param.u32 %r0, [x]; setp.gt.u32 %p, %r0, 20; @%p bra $big; mul.lo.u32 %r1, %r0, 3; st.param.b32 [result+0], %r1; ret;
$big: st.param.b32 [result+0], %r0; ret; }
.func (.reg .b32 %out) plus(.reg .b32 %a, .reg .b32 %b) { add.u32 %out, %a, %b; ret; }
.func (.param .align 8 .b8 out[16]) swap(.param .align 8 .b8 in[16]) { .reg .b64 %x<3>;
ld.param.v2.b64 {%x0, %x1}, [in]; st.param.b64 [out], %x1; st.param.b64 [out+8], %x0; ret; }
"""


def test_calls() -> None:
    """Divergent calls, register parameters, structs by value."""
    got = threads("""
{ .param .b32 p; .param .b32 q; st.param.b32 [p+0], %t0; call.uni (q), triple, (p); ld.param.b32 %r0, [q+0]; }
setp.lt.u32 %p0, %t0, 10; @!%p0 bra $skip;
{ .param .b32 p; .param .b32 q; st.param.b32 [p], %r0; call (q), triple, (p); ld.param.b32 %r0, [q]; }
$skip: call (%r0), plus, (%r0, 1000);
{ .param .align 8 .b8 p[16]; .param .align 8 .b8 q[16]; cvt.u64.u32 %x5, %r0; mov.u64 %x6, 5; st.param.v2.b64 [p],
{%x5, %x6}; call.uni (q), swap, (p); ld.param.b64 %x7, [q]; ld.param.b64 %x8, [q+8]; shl.b64 %x7, %x7, 20; add.u64
%x7, %x7, %x8; cvt.u32.u64 %r0, %x7; }""", head=FUNCTIONS)  # fmt: skip

    def triple(x: int) -> int:
        return x if x > 20 else 3 * x

    for t in range(50):
        once = triple(t)
        assert got[t] == (triple(once) if t < 10 else once) + 1000 + (5 << 20)


def test_param_variable_addressed_by_register() -> None:
    got = threads("""
{ .param .align 4 .b8 p[16]; st.param.b32 [p], 1; st.param.b32 [p+4], %t0; mov.b64 %x5, p; and.b32 %r1, %t0, 1;
mad.wide.u32 %x6, %r1, 4, %x5; ld.param.u32 %r0, [%x6]; }""")
    assert got.tolist() == [t if t & 1 else 1 for t in range(50)] * 3


PRINT = """.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 fmt[7] = {37, 100, 32, 37, 102, 10, 0};
"""


def test_printf() -> None:
    out = np.zeros(40, np.uint32)
    text = (
        HEADER
        + PRINT
        + """.visible .entry k(.param .u64 out) { .local .align 8 .b8 depot[16]; .reg .b64 %SP, %SPL, %x<9>;
.reg .b32 %r<9>; .reg .pred %p<3>; .reg .f64 %fd;
mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL; mov.u32 %r0, %tid.x; setp.gt.u32 %p0, %r0, 2; @%p0 bra $out;
add.u64 %x0, %SP, 0; add.u64 %x1, %SPL, 0; st.local.u32 [%x1], %r0; cvt.rn.f64.u32 %fd, %r0; st.local.f64 [%x1+8], %fd;
mov.u64 %x2, fmt; cvta.global.u64 %x3, %x2;
{ .param .b64 p0; st.param.b64 [p0+0], %x3; .param .b64 p1; st.param.b64 [p1+0], %x0; .param .b32 q;
call.uni (q), vprintf, (p0, p1); ld.param.b32 %r1, [q+0]; }
ld.param.u64 %x4, [out]; mad.wide.u32 %x5, %r0, 4, %x4; st.global.u32 [%x5], %r1;
$out: ret; }"""
    )
    events = run(text, "k", 1, 40, [out])
    assert [fmt for fmt, _ in events.printed] == [b"%d %f\n"] * 3
    assert [(struct.unpack_from("<i", a)[0], struct.unpack_from("<d", a, 8)[0]) for a in events.arguments] == [
        (0, 0.0), (1, 1.0), (2, 2.0)
    ]  # fmt: skip
    assert out.tolist() == [7, 7, 7] + [0] * 37


def test_assert_trap_malloc() -> None:
    head = HEADER + """.extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param
    .b64 c); .extern .func (.param .b64 r) malloc (.param .b64 n); .extern .func free (.param .b64 p);
.const .align 1 .b8 msg[3] = {72, 105, 0}; .global .align 1 .b8 file[2] = "?";
""".replace(' = "?"', " = {102, 0}")  # fmt: skip
    text = (
        head
        + """.visible .entry a() { .reg .b64 %x<4>; .reg .b32 %r; .reg .pred %p; mov.u32 %r, %tid.x; setp.ne.u32 %p,
        %r, 3; @%p bra $out; mov.u64 %x0, msg; cvta.const.u64 %x0, %x0; mov.u64 %x1, file; cvta.global.u64 %x1, %x1;
{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e; st.param.b64 [a], %x0; st.param.b64 [b],
%x1; st.param.b32 [c], 12; st.param.b64 [d], %x1; st.param.b64 [e], 1; call.uni __assertfail, (a, b, c, d, e); }
$out: ret; }
.visible .entry t() { .reg .b32 %r; .reg .pred %p; mov.u32 %r, %tid.x; setp.eq.u32 %p, %r, 3; @%p trap; ret; }
.visible .entry m(.param .u64 out) { .reg .b64 %x<4>; .reg .b32 %r; .reg .pred %p; mov.u32 %r, %tid.x;
{ .param .b64 n; .param .b64 q; st.param.b64 [n], 24; call (q), malloc, (n); ld.param.b64 %x0, [q]; }
st.u32 [%x0+20], %r; ld.param.u64 %x1, [out]; mad.wide.u32 %x2, %r, 4, %x1; ld.u32 %r, [%x0+20]; st.global.u32 [%x2],
%r; { .param .b64 p; st.param.b64 [p], %x0; call free, (p); } ret; }"""
    )
    events = run(text, "a", 2, 8, [])
    assert events.asserted == [(b"Hi", b"f", 12, b"f")] * 2
    assert events.places == [((0, 0, 0), 3), ((1, 0, 0), 3)]
    failed = run(text, "t", 1, 40, []).failed
    assert failed[0][0] == 719
    assert b"t: trap" in failed[0][1]
    out = np.zeros(8, np.uint32)
    events = run(text, "m", 1, 8, [out])
    assert out.tolist() == list(range(8))
    assert len(events.heap) == len(set(events.freed)) == 8


def test_special_registers() -> None:
    got = threads("""
mov.u32 %r1, %smid; mov.u64 %x5, %gridid; mov.u32 %r2, %nwarpid; mov.u64 %x6, %clock64; mov.u64 %x7, %clock64;
setp.gt.u64 %p0, %x7, %x6; selp.u32 %r0, 1, 0, %p0; mov.u64 %x8, %globaltimer;
setp.gt.u64 %p1, %x8, 1600000000000000000;
@%p1 add.u32 %r0, %r0, 2; mad.lo.u32 %r0, %r1, 10, %r0; cvt.u32.u64 %r3, %x5; mad.lo.u32 %r0, %r3, 100, %r0;
mad.lo.u32 %r0, %r2, 1000, %r0; mov.u32 %r4, %dynamic_smem_size; add.u32 %r0, %r0, %r4;
mov.u32 %r4, WARP_SZ; mad.lo.u32 %r0, %r4, 10000, %r0;""")
    assert (got == 3 + 30 + 500 + 2000 + 320000).all()


@pytest.mark.parametrize(
    ("body", "error", "match"),
    [
        ("bogus.u32 %r, 1;", PtxError, "unknown instruction `bogus`"),
        ("add.u32 %r, %r, %q;", PtxError, "`%q` is not declared"),
        ("bra $nowhere;", PtxError, "undefined label"),
        ("add.u32 %r, %r 1;", PtxError, "expected `;`"),
        ("txq.width.b32 %r, [%x];", UnsupportedInstruction, "txq"),
        ("tcgen05.wait::ld.sync.aligned;", UnsupportedInstruction, "tcgen05"),
    ],
)
def test_errors(body: str, error: type[PtxError], match: str) -> None:
    text = HEADER + f""".visible .entry k() {{ .reg .b32 %r; .reg .b64 %x;\n{body}\nret; }}"""
    with pytest.raises(error, match=match.replace("$", r"\$")) as caught:
        run(text, "k", 1, 32, [])
    assert caught.value.result == (801 if error is UnsupportedInstruction else 218)
    assert "line 5" in str(caught.value)
