"""Functions in cycles of the call graph (NR17): threads at different depths, values across calls, stack overflow."""

from __future__ import annotations

import functools

import numpy as np

from tests.vgpusim.codegen.harness import HEADER, run

_MAIN = """.visible .entry k(.param .u64 out) {{ .reg .b32 %r<4>; .reg .b64 %x<4>; ld.param.u64 %x1, [out];
mov.u32 %r1, %tid.x; rem.u32 %r1, %r1, {modulus};
{{ .param .b32 a; st.param.b32 [a], %r1; .param .b32 v; call.uni (v), {name}, (a); ld.param.b32 %r2, [v]; }}
mov.u32 %r1, %tid.x; mad.wide.u32 %x2, %r1, 4, %x1; st.global.u32 [%x2], %r2; ret; }}
"""


def _results(functions: str, name: str, modulus: int, block: int = 100) -> list[int]:
    out = np.full(block, 0xEEEE, np.uint32)
    events = run(HEADER + functions + _MAIN.format(name=name, modulus=modulus), "k", 1, block, [out])
    assert events.failed == []
    return [int(value) for value in out]


def _call(name: str, argument: str, result: str) -> str:
    return (
        f"{{ .param .b32 a; st.param.b32 [a], {argument}; .param .b32 v; call.uni (v), {name}, (a); "
        f"ld.param.b32 {result}, [v]; }}"
    )


FIBONACCI = f""".visible .func (.param .b32 out) fib(.param .b32 n) {{ .reg .pred %p; .reg .b32 %r<9>;
ld.param.u32 %r1, [n]; setp.lt.s32 %p, %r1, 2; @%p bra L; add.s32 %r2, %r1, -1;
{_call("fib", "%r2", "%r3")}
add.s32 %r4, %r1, -2;
{_call("fib", "%r4", "%r5")}
add.s32 %r1, %r5, %r3;
L: st.param.b32 [out], %r1; ret; }}
"""


def test_two_calls_in_one_function() -> None:
    @functools.cache
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    assert _results(FIBONACCI, "fib", 16) == [fib(i % 16) for i in range(100)]


def test_functions_that_call_each_other() -> None:
    """Predicates, 16-bit and 64-bit integers and floats are live across the calls."""
    functions = f""".func (.param .b32 out) odd(.param .b32 n);
.func (.param .b32 out) even(.param .b32 n) {{ .reg .pred %p, %q; .reg .b32 %r<6>; .reg .b64 %x; .reg .b16 %h;
.reg .f32 %f; ld.param.u32 %r1, [n]; setp.eq.u32 %p, %r1, 0; @%p bra Z; and.b32 %r2, %r1, 2; setp.ne.u32 %q, %r2, 0;
cvt.u64.u32 %x, %r1; shl.b64 %x, %x, 33; cvt.u16.u32 %h, %r1; cvt.rn.f32.u32 %f, %r1; sub.u32 %r3, %r1, 1;
{_call("odd", "%r3", "%r4")}
@%q add.u32 %r4, %r4, 1000; shr.u64 %x, %x, 33; cvt.u32.u64 %r5, %x; add.u32 %r4, %r4, %r5; cvt.u32.u16 %r5, %h;
add.u32 %r4, %r4, %r5; cvt.rzi.u32.f32 %r5, %f; add.u32 %r4, %r4, %r5; st.param.b32 [out], %r4; ret;
Z: st.param.b32 [out], 7; ret; }}
.func (.param .b32 out) odd(.param .b32 n) {{ .reg .b32 %r<6>; .reg .pred %p; ld.param.u32 %r1, [n];
setp.eq.u32 %p, %r1, 0; @%p bra Z; sub.u32 %r2, %r1, 1;
{_call("even", "%r2", "%r3")}
mad.lo.u32 %r3, %r1, 3, %r3; st.param.b32 [out], %r3; ret; Z: st.param.b32 [out], 9; ret; }}
"""

    def even(n: int) -> int:
        return 7 if n == 0 else odd(n - 1) + (1000 if n & 2 else 0) + 3 * n

    def odd(n: int) -> int:
        return 9 if n == 0 else even(n - 1) + 3 * n

    assert _results(functions, "even", 23) == [even(i % 23) for i in range(100)]


def test_each_depth_has_its_own_local_memory() -> None:
    """An array in local memory, reached through a generic pointer, written before the call and summed after it."""
    functions = f""".func (.param .b32 out) sum(.param .b32 n) {{ .local .align 8 .b8 depot[16]; .reg .pred %p;
.reg .b32 %r<9>; .reg .b64 %SP, %SPL; mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL; ld.param.u32 %r1, [n];
st.u32 [%SP+4], %r1; mul.lo.u32 %r2, %r1, %r1; st.local.u32 [%SPL+12], %r2; mov.u32 %r3, 0;
setp.eq.u32 %p, %r1, 0; @%p bra L; sub.u32 %r4, %r1, 1;
{_call("sum", "%r4", "%r3")}
L: ld.local.u32 %r5, [depot+4]; ld.u32 %r6, [%SP+12]; add.u32 %r3, %r3, %r5; add.u32 %r3, %r3, %r6;
st.param.b32 [out], %r3; ret; }}
"""
    assert _results(functions, "sum", 31) == [sum(n + n * n for n in range(i % 31 + 1)) for i in range(100)]


def test_arguments_in_memory() -> None:
    """A struct passed by value is read in other widths than it is written in, before and after the call."""
    functions = """.func (.param .align 8 .b8 out[16]) twice(.param .align 8 .b8 s[16]) { .reg .pred %p;
.reg .b32 %r<9>; .reg .b64 %x<4>; ld.param.u64 %x1, [s]; ld.param.u32 %r1, [s+8]; ld.param.u32 %r2, [s+12];
setp.eq.u32 %p, %r1, 0; @%p bra L; sub.u32 %r3, %r1, 1; add.u64 %x2, %x1, 5;
{ .param .align 8 .b8 a[16]; st.param.b64 [a], %x2; st.param.v2.b32 [a+8], {%r3, %r2}; .param .align 8 .b8 v[16];
call.uni (v), twice, (a); ld.param.b64 %x1, [v]; ld.param.b32 %r4, [v+8]; }
ld.param.b8 %r5, [s+8]; add.u32 %r2, %r4, %r5;
L: st.param.b64 [out], %x1; st.param.b32 [out+8], %r2; ret; }
.visible .func (.param .b32 out) start(.param .b32 n) { .reg .b32 %r<6>; .reg .b64 %x<3>; ld.param.u32 %r1, [n];
{ .param .align 8 .b8 a[16]; st.param.b64 [a], 100; st.param.b32 [a+8], %r1; st.param.b32 [a+12], 3;
.param .align 8 .b8 v[16]; call.uni (v), twice, (a); ld.param.b64 %x1, [v]; ld.param.b32 %r2, [v+8]; }
cvt.u32.u64 %r3, %x1; mad.lo.u32 %r3, %r2, 1000, %r3; st.param.b32 [out], %r3; ret; }
"""
    expected = [(100 + 5 * n) + 1000 * (3 + n * (n + 1) // 2) for n in (i % 13 for i in range(100))]
    assert _results(functions, "start", 13) == expected


def test_deepest() -> None:
    """An endless recursion ends the launch with error 719 and a reason."""
    text = FIBONACCI.replace("setp.lt.s32 %p, %r1, 2;", "setp.lt.s32 %p, %r1, -1000000;")
    out = np.zeros(32, np.uint32)
    events = run(HEADER + text + _MAIN.format(name="fib", modulus=3), "k", 1, 32, [out])
    assert {result for result, _ in events.failed} == {719}
    assert b"stack overflow: fib recurses" in events.failed[0][1]


def test_through_a_pointer() -> None:
    functions = """.func (.param .b32 out) down(.param .b32 n) { .reg .pred %p; .reg .b32 %r<5>; .reg .b64 %f;
ld.param.u32 %r1, [n]; mov.u32 %r2, 5; setp.eq.u32 %p, %r1, 0; @%p bra L; sub.u32 %r3, %r1, 1; mov.u64 %f, down;
{ .param .b32 a; st.param.b32 [a], %r3; .param .b32 v; proto: .callprototype (.param .b32 _) _ (.param .b32 _);
call (v), %f, (a), proto; ld.param.b32 %r2, [v]; }
add.u32 %r2, %r2, %r1; L: st.param.b32 [out], %r2; ret; }
"""
    assert _results(functions, "down", 9) == [5 + n * (n + 1) // 2 for n in (i % 9 for i in range(100))]
