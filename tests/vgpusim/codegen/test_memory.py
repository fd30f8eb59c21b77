"""Loads, stores, address spaces, module variables, atomics, asynchronous copies."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest
from vgpusim.codegen import abi, emit_code, emit_layout, emit_masked, native
from vgpusim.codegen.compile import DiskCache, PtxModule, compile_entry

from tests.vgpusim.codegen import harness
from tests.vgpusim.codegen.harness import HEADER, run
from tests.vgpusim.codegen.test_control import threads


@pytest.mark.parametrize("kind", ["u8", "s8", "u16", "s16", "b32", "b64", "f64"])
@pytest.mark.parametrize("access", ["row", "reversed", "scattered"])
def test_load_store(kind: str, access: str) -> None:
    """Consecutive, backward and table-driven addresses; lanes past the end, with undefined indices, access nothing."""
    n = 77
    dtype = {"b": "u", "f": "f"}.get(kind[0], {"u": "u", "s": "i"}.get(kind[0], "u")) + str(int(kind[1:]) // 8)
    rng = np.random.default_rng(1)
    source = rng.integers(0, 256, n * np.dtype(dtype).itemsize, dtype=np.uint8).view(dtype)
    order = {"row": np.arange(n), "reversed": np.arange(n)[::-1], "scattered": rng.permutation(n)}[access].astype(
        np.uint32
    )
    out = np.zeros(n, dtype)
    wide = np.zeros(n, np.int32)
    nbytes = np.dtype(dtype).itemsize
    index = {
        "row": "mov.u32 %r1, %r0;", "reversed": f"sub.u32 %r1, {n - 1}, %r0;",
        "scattered": "mad.wide.u32 %x4, %r0, 4, %x2; ld.global.nc.u32 %r1, [%x4];",
    }[access]  # fmt: skip
    reg = f"b{max(16, nbytes * 8)}"
    extend = f"cvt.s32.{kind} %r2, %v;" if kind[0] in "us" else "mov.u32 %r2, 0;"
    text = (
        HEADER
        + f""".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {{
.reg .b32 %r<9>; .reg .b64 %x<9>; .reg .pred %p; .reg .{reg} %v;
ld.param.u64 %x0, [a]; ld.param.u64 %x1, [b]; ld.param.u64 %x2, [c]; ld.param.u64 %x3, [d];
mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x; mad.lo.u32 %r0, %r3, %r4, %r5;
setp.ge.u32 %p, %r0, {n};
@%p bra $out; {index} cvt.u64.u32 %x5, %r1; mad.lo.u64 %x6, %x5, {nbytes}, %x0; ld.global.{kind} %v, [%x6];
mad.lo.u64 %x7, %x5, {nbytes}, %x1; st.global.{kind} [%x7], %v; {extend} mad.lo.u64 %x8, %x5, 4, %x3; st.u32 [%x8], %r2;
$out: ret; }}"""
    )
    run(text, "k", 2, 50, [source, out, order, wide])
    assert out.tobytes() == source.tobytes()
    if kind[0] in "us":
        assert np.array_equal(wide, source.astype(np.int32))


def test_cache_operators() -> None:
    """They are hints, but for .cv and .wt, which are volatile."""
    loads, stores = ("ca", "cg", "cs", "lu", "cv"), ("wb", "cg", "cs", "wt")
    copies = [
        f"ld.global.{load}.u32 %r0, [%x0+{4 * i}]; st.global.{stores[i % 4]}.u32 [%x1+{4 * i}], %r0;"
        for i, load in enumerate(loads)
    ]
    text = f""".visible .entry k(.param .u64 a, .param .u64 b) {{ .reg .b32 %r<2>; .reg .b64 %x<2>;
ld.param.u64 %x0, [a]; ld.param.u64 %x1, [b]; {" ".join(copies)} ret; }}"""
    source, out = np.arange(1, 6, dtype=np.uint32), np.zeros(5, np.uint32)
    run(HEADER + text, "k", 1, 1, [source, out])
    assert np.array_equal(out, source)


@pytest.mark.parametrize("kind", ["b32", "b64"])
@pytest.mark.parametrize("has", [True, False])
def test_scattered_with_and_without_masked_gathers(kind: str, has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the instructions, large kernels share a function for such accesses."""
    monkeypatch.setattr(native, "has_masked_gathers", lambda: has)
    monkeypatch.setattr(emit_masked, "_INLINE_INSTRUCTIONS", 0)
    harness._compiled.cache_clear()
    test_load_store(kind, "scattered")
    harness._compiled.cache_clear()


@pytest.mark.parametrize("acting", ["all", "upper half", "odd", "none"])
@pytest.mark.parametrize(("kind", "count"), [("b32", 2), ("b32", 4), ("b64", 2)])
@pytest.mark.parametrize("column", [True, False])
def test_tuples_of_tiles(kind: str, count: int, acting: str, column: bool) -> None:
    """Lanes of a tile's row load vectors that follow each other; by columns, other rows load the same ones."""
    nbytes = int(kind[1:]) // 8 * count
    condition = {"all": "setp.lt.u32 %p, %r0, 64;", "upper half": "setp.ge.u32 %p, %r0, 8;",
                 "odd": "and.b32 %r4, %r0, 1; setp.eq.u32 %p, %r4, 1;", "none": "setp.gt.u32 %p, %r0, 64;"}  # fmt: skip
    x, y = np.arange(16), np.arange(4)[:, None]
    acts = {"all": x < 64, "upper half": x >= 8, "odd": x % 2 == 1, "none": x > 64}[acting] & (y >= 0)
    stride = 0 if column else 20 * nbytes
    source = np.random.default_rng(4).integers(0, 256, 80 * nbytes, dtype=np.uint8)
    out = np.zeros((4, 16, nbytes), np.uint8)
    names = ", ".join(f"%v{i}" for i in range(count))
    text = (
        HEADER
        + f""".visible .entry k(.param .u64 a, .param .u64 b) {{ .reg .b32 %r<9>; .reg .b64 %x<9>; .reg .pred %p;
.reg .{kind} %v<4>; ld.param.u64 %x0, [a]; ld.param.u64 %x1, [b]; mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y;
{condition[acting]} mad.wide.u32 %x2, %r0, {nbytes}, %x0; mad.wide.u32 %x2, %r1, {stride}, %x2;
mad.lo.u32 %r2, %r1, 16, %r0; mad.wide.u32 %x3, %r2, {nbytes}, %x1;
@!%p bra $out; ld.global.v{count}.{kind} {{{names}}}, [%x2]; st.global.v{count}.{kind} [%x3], {{{names}}}; $out: ret;
}}"""
    )
    run(text, "k", 1, (16, 4, 1), [source, out])
    places = (x * nbytes + y * stride)[..., None] + np.arange(nbytes)
    assert np.array_equal(out, np.where(acts[..., None], source[places], 0))


@pytest.mark.parametrize("acting", ["all", "upper half", "odd", "none"])
@pytest.mark.parametrize(("kind", "stride"), [("b32", 24), ("b32", -40), ("b64", 16), ("b64", 4096)])
def test_records(kind: str, stride: int, acting: str) -> None:
    """Lanes at known distances that are no row, in a branch that all, some or none of them take."""
    nbytes = int(kind[1:]) // 8
    condition = {"all": "setp.lt.u32 %p, %r0, 64;", "upper half": "setp.ge.u32 %p, %r4, 16;",
                 "odd": "and.b32 %r4, %r0, 1; setp.eq.u32 %p, %r4, 1;", "none": "setp.gt.u32 %p, %r0, 64;"}  # fmt: skip
    lanes = np.arange(64)
    acts = {"all": lanes < 64, "upper half": lanes % 32 >= 16, "odd": lanes % 2 == 1, "none": lanes > 64}[acting]
    source = np.random.default_rng(3).integers(0, 256, 64 * abs(stride), dtype=np.uint8)
    out = np.zeros_like(source)
    first = -63 * stride if stride < 0 else 0
    text = (
        HEADER
        + f""".visible .entry k(.param .u64 a, .param .u64 b) {{ .reg .b32 %r<9>; .reg .b64 %x<9>; .reg .pred %p;
.reg .{kind} %v; ld.param.u64 %x0, [a]; ld.param.u64 %x1, [b]; mov.u32 %r0, %tid.x; and.b32 %r4, %r0, 31;
{condition[acting]} mul.wide.s32 %x2, %r0, {stride}; add.s64 %x3, %x0, %x2; add.s64 %x4, %x1, %x2;
@!%p bra $out; ld.global.{kind} %v, [%x3+{first}]; st.global.{kind} [%x4+{first}], %v; $out: ret; }}"""
    )
    run(text, "k", 1, 64, [source, out])
    expected = np.zeros_like(source)
    for lane in lanes[acts]:
        at = first + lane * stride
        expected[at : at + nbytes] = source[at : at + nbytes]
    assert np.array_equal(out, expected)


def test_records_of_several_lanes() -> None:
    """Of lanes that store to one address the highest wins."""
    out = np.zeros((8, 3), np.uint32)
    text = (
        HEADER
        + """.visible .entry k(.param .u64 a) { .reg .b32 %r<9>; .reg .b64 %x<9>; ld.param.u64 %x0, [a];
mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 7; mul.wide.u32 %x1, %r1, 12; add.s64 %x2, %x0, %x1;
st.global.u32 [%x2], %r0; ret; }"""
    )
    run(text, "k", 1, 32, [out])
    assert out[:, 0].tolist() == list(range(24, 32))


@pytest.mark.parametrize("n", [2, 4])
def test_vectors(n: int) -> None:
    source, out = np.arange(50 * n, dtype=np.float32), np.zeros(50 * n, np.float32)
    regs = ", ".join(f"%f{i}" for i in range(n))
    text = (
        HEADER
        + f""".visible .entry k(.param .u64 a, .param .u64 b) {{ .reg .b32 %r; .reg .f32 %f<4>; .reg .b64 %x<5>;
ld.param.u64 %x0, [a]; ld.param.u64 %x1, [b]; mov.u32 %r, %tid.x; mul.wide.u32 %x2, %r, {4 * n}; add.u64 %x3, %x0, %x2;
add.u64 %x4, %x1, %x2; ld.global.v{n}.f32 {{{regs}}}, [%x3]; add.f32 %f0, %f0, %f1;
st.global.v{n}.f32 [%x4], {{{regs}}}; ret; }}"""
    )
    run(text, "k", 1, 50, [source, out])
    expected = source.copy().reshape(50, n)
    expected[:, 0] += expected[:, 1]
    assert np.array_equal(out.reshape(50, n), expected)


@pytest.mark.parametrize("order", ["", "volatile.", "relaxed.sys."])
@pytest.mark.parametrize(
    ("kind", "n"),
    [("u8", 2), ("u8", 4), ("b16", 2), ("b16", 4), ("b32", 2), ("b32", 4), ("b64", 2), ("b32", 8), ("b64", 4)],
)
def test_vectors_of_every_width(kind: str, n: int, order: str) -> None:
    """A full warp, a partially active warp, and lanes past the end, whose elements stay unchanged."""
    nbytes = int(kind[1:]) // 8
    rng = np.random.default_rng(n)
    source = rng.integers(0, 256, (70, n, nbytes), dtype=np.uint8)
    out = np.full((70, n, nbytes), 0xAA, np.uint8)
    regs = [f"%v{i}" for i in range(n)]
    text = (
        HEADER
        + f""".visible .entry k(.param .u64 a, .param .u64 b) {{ .reg .b32 %r; .reg .pred %p; .reg .b64 %x<5>;
.reg .b{max(16, 8 * nbytes)} %v<8>; ld.param.u64 %x0, [a]; ld.param.u64 %x1, [b]; mov.u32 %r, %tid.x;
mul.wide.u32 %x2, %r, {n * nbytes}; add.u64 %x3, %x0, %x2; add.u64 %x4, %x1, %x2; setp.gt.u32 %p, %r, 67; @%p ret;
ld.{order}global.v{n}.{kind} {{{", ".join(regs)}}}, [%x3];
st.{order}global.v{n}.{kind} [%x4], {{{", ".join(reversed(regs))}}}; ret; }}"""
    )
    run(text, "k", 1, 70, [source, out])
    assert np.array_equal(out[:68], source[:68, ::-1])
    assert (out[68:] == 0xAA).all()


def test_vectors_at_one_address() -> None:
    """All active lanes load the same vector, in a branch that some lanes take, and store to one address."""
    source, out = np.arange(4, dtype=np.uint32) + 7, np.zeros((64, 4), np.uint32)
    one = np.zeros(4, np.uint32)
    text = (
        HEADER
        + """.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) { .reg .b32 %r, %v<4>; .reg .pred %p;
.reg .b64 %x<4>; ld.param.u64 %x0, [a]; ld.param.u64 %x1, [b]; ld.param.u64 %x2, [c]; mov.u32 %r, %tid.x;
setp.lt.u32 %p, %r, 9; @%p ret; ld.volatile.global.v4.u32 {%v0, %v1, %v2, %v3}, [%x0];
st.volatile.global.v4.u32 [%x2], {%v3, %v2, %v1, %v0};
mad.wide.u32 %x3, %r, 16, %x1; st.global.v4.u32 [%x3], {%v0, %v1, %v2, %v3}; ret; }"""
    )
    run(text, "k", 1, 64, [source, out, one])
    assert (out[:9] == 0).all()
    assert (out[9:] == source).all()
    assert np.array_equal(one, source[::-1])


def test_vectors_of_variables_that_are_aligned_to_their_elements() -> None:
    out = np.zeros(4, np.uint32)
    text = (
        HEADER
        + """.shared .align 4 .b8 s[64]; .visible .entry k(.param .u64 a) { .reg .b32 %v<4>; .reg .b64 %x;
ld.param.u64 %x, [a]; mov.u32 %v0, 1; mov.u32 %v1, 2; mov.u32 %v2, 3; mov.u32 %v3, 4;
st.volatile.shared.v4.u32 [s+4], {%v0, %v1, %v2, %v3}; ld.volatile.shared.v4.u32 {%v3, %v2, %v1, %v0}, [s+4];
st.global.v4.u32 [%x], {%v0, %v1, %v2, %v3}; ret; }"""
    )
    run(text, "k", 1, 32, [out])
    assert out.tolist() == [4, 3, 2, 1]


def test_shared_atomics_in_a_loop() -> None:
    """In some rounds all lanes of a warp are active, in others some lanes; a lane sees what lower lanes have added."""
    cells, seen = np.zeros(16, np.uint32), np.zeros((9, 64), np.uint32)
    text = (
        HEADER
        + """.visible .entry k(.param .u64 a, .param .u64 b) { .reg .b32 %r<9>; .reg .b64 %x<9>; .reg .pred %p;
.shared .u32 s[16]; ld.param.u64 %x0, [a]; ld.param.u64 %x1, [b]; mov.u32 %r0, %tid.x; mov.u32 %r1, s;
and.b32 %r2, %r0, 15; mad.lo.u32 %r2, %r2, 4, %r1; mov.u32 %r3, 0; st.shared.u32 [%r2], %r3; bar.sync 0;
$again: atom.shared.add.u32 %r4, [%r2], %r3; mad.lo.u32 %r5, %r3, 64, %r0; mad.wide.u32 %x2, %r5, 4, %x1;
st.global.u32 [%x2], %r4; red.shared.max.u32 [%r1], 1; add.u32 %r3, %r3, 1; and.b32 %r6, %r0, 7; min.u32 %r6, %r6, 3;
add.u32 %r6, %r6, 5; setp.le.u32 %p, %r3, %r6; @%p bra $again;
bar.sync 0; ld.shared.u32 %r4, [%r2]; and.b32 %r7, %r0, 15; mad.wide.u32 %x3, %r7, 4, %x0; st.global.u32 [%x3], %r4;
ret; }"""
    )
    run(text, "k", 1, 64, [cells, seen])
    expected, values = [0] * 16, np.zeros((9, 64), np.uint32)
    for warp in range(2):  # neither warp waits for the other
        for turn in range(9):
            lanes = [t for t in range(32 * warp, 32 * warp + 32) if turn <= min(t & 7, 3) + 5]
            for t in lanes:
                values[turn, t] = expected[t & 15]
                expected[t & 15] += turn
            if lanes:
                expected[0] = max(expected[0], 1)
    assert np.array_equal(seen, values)
    assert cells.tolist() == expected


def test_masked_lanes_touch_no_memory() -> None:
    """Without their guards these accesses would fault: the addresses are in the first page."""
    got = threads("""
setp.lt.u32 %p0, %t0, 10; mov.u64 %x5, 64; @%p0 mov.u64 %x5, %x1; mov.u32 %r1, 5;
@%p0 st.global.u32 [%x5], %r1; @%p0 ld.global.u32 %r0, [%x5]; setp.gt.u32 %p1, %t0, 1000; mov.u64 %x6, 8;
@%p1 ld.global.u32 %r0, [%x6]; @%p1 st.global.u32 [%x6], 1; @%p1 atom.global.add.u32 %r0, [%x6], 1;
@%p1 ld.global.u8 %r0, [%x6]; @%p1 ld.volatile.global.u32 %r0, [%x6];""")
    assert got.tolist() == ([5] * 10 + [0] * 40) * 3


def test_local_memory_generic_addresses_and_isspacep() -> None:
    got = threads("""
.local .align 8 .b8 depot[64]; .shared .align 4 .b8 sh[400]; mov.u64 %x2, depot; cvta.local.u64 %x3, %x2;
and.b32 %r1, %t0, 7; mad.wide.u32 %x4, %r1, 8, %x2; st.local.u32 [%x4], %t0; mad.wide.u32 %x5, %r1, 8, %x3;
ld.u32 %r0, [%x5];
cvta.to.local.u64 %x6, %x5; ld.local.u32 %r2, [%x6]; add.u32 %r0, %r0, %r2;
mov.u64 %x7, sh; cvta.shared.u64 %x8, %x7; mad.wide.u32 %x9, %t0, 4, %x8; st.u32 [%x9], %t0; mov.u32 %r3, sh;
mad.lo.u32 %r3, %t0, 4, %r3; ld.shared.u32 %r4, [%r3]; mad.lo.u32 %r0, %r4, 1000, %r0; cvta.to.shared.u64 %x10, %x9;
cvt.u32.u64 %r5, %x10; sub.u32 %r5, %r5, %r3; add.u32 %r0, %r0, %r5;
isspacep.shared %p0, %x9; isspacep.local %p1, %x5; isspacep.global %p2, %x1; isspacep.global %p3, %x9;
isspacep.local %p4, %x1;
@!%p0 mov.u32 %r0, 1; @!%p1 mov.u32 %r0, 2; @!%p2 mov.u32 %r0, 3; @%p3 mov.u32 %r0, 4; @%p4 mov.u32 %r0, 5;""")
    assert got.tolist() == [2 * t + 1000 * t for t in range(50)] * 3


def test_shared_neighbour_below_zero() -> None:
    """s[tid - 1] with s at offset 0: lane 0 is guarded, the others must read the right place."""
    got = threads("""
.shared .u32 s[64]; shl.b32 %r1, %t0, 2; mov.u32 %r2, s; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %t0; bar.sync 0;
setp.eq.u32 %p0, %t0, 0; add.u32 %r3, %r1, -4; @!%p0 ld.shared.u32 %r0, [%r3]; @!%p0 ld.shared.u32 %r4, [%r1+-4];
@!%p0 add.u32 %r0, %r0, %r4;""")
    assert got.tolist() == ([0] + [2 * (t - 1) for t in range(1, 50)]) * 3


def test_unsigned_index_below_zero() -> None:
    """x[tid - 5] with an unsigned index, used only where it is in range."""
    x, out = np.arange(100, 200, dtype=np.uint32), np.zeros(64, np.uint32)
    text = (
        HEADER
        + """.visible .entry k(.param .u64 a, .param .u64 b) { .reg .b32 %r<5>; .reg .b64 %x<6>; .reg .pred %p;
ld.param.u64 %x0, [a]; ld.param.u64 %x1, [b]; mov.u32 %r0, %tid.x; add.u32 %r1, %r0, -5; setp.lt.u32 %p, %r1, 100;
mul.wide.u32 %x2, %r1, 4; add.u64 %x3, %x0, %x2; @%p ld.global.u32 %r2, [%x3]; @!%p mov.u32 %r2, 0;
mul.wide.u32 %x4, %r0, 4; add.u64 %x5, %x1, %x4; st.global.u32 [%x5], %r2; ret; }"""
    )
    run(text, "k", 1, 64, [x, out])
    assert out.tolist() == [0] * 5 + list(range(100, 159))


def test_module_variables_and_shared_memory() -> None:
    head = """.global .align 4 .u32 table[4] = {11, 22, 33, 44}; .const .align 8 .f64 pi = 0d400921FB54442D18;
.global .align 8 .u64 pointer = table+8; .global .align 8 .u64 pointers[2] = {generic(pi), table};
.global .align 4 .f32 floats[2] = {1.5, 0f40000000}; .extern .shared .align 16 .b8 dynamic[];
.shared .align 4 .u32 fixed[2];
.global .align 1 .b8 bytes[3][2] = {{1, 2}, {3, 4}, {5, 255}};
"""
    body = """.visible .entry k(.param .u64 out) { .reg .b32 %r<20>; .reg .b64 %x<20>; .reg .f64 %d; .reg .f32 %f;
ld.param.u64 %x0, [out]; ld.global.u32 %r0, [table+4]; ld.global.u64 %x1, [pointer]; ld.global.u32 %r1, [%x1];
ld.global.u64 %x2, [pointers]; ld.f64 %d, [%x2]; cvt.rzi.u32.f64 %r2, %d; ld.const.f64 %d, [pi];
cvt.rni.u32.f64 %r3, %d;
ld.global.f32 %f, [floats+4]; cvt.rzi.u32.f32 %r4, %f; ld.global.u8 %r5, [bytes+5];
mov.u32 %r6, dynamic[0]; mov.u32 %r7, fixed; st.shared.u32 [dynamic], 77; st.shared.u32 [fixed+4], 88;
ld.shared.u32 %r8, [%r6]; ld.shared.u32 %r9, [%r7+4]; mov.u64 %x3, table; atom.global.add.u32 %r10, [%x3], 1;
st.global.v4.u32 [%x0], {%r0, %r1, %r2, %r3}; st.global.v4.u32 [%x0+16], {%r4, %r5, %r8, %r9}; sub.u32 %r11, %r6, %r7;
st.global.u32 [%x0+32], %r11; ret; }"""
    out = np.zeros(9, np.uint32)
    text = HEADER + head + body
    run(text, "k", 1, 1, [out], shared=64)
    assert out.tolist() == [22, 33, 3, 3, 2, 255, 77, 88, 16]
    module = PtxModule.parse(text)
    assert [v.name for v in module.variables] == ["table", "pi", "pointer", "pointers", "floats", "bytes"]
    assert [v.space for v in module.variables] == ["global", "const"] + ["global"] * 4
    assert module.variables[2].relocations == [(0, "table", 8)]
    assert module.variables[3].relocations == [(0, "pi", 0), (8, "table", 0)]
    assert module.entry("k").shared_nbytes == 16


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(
    ("operation", "initial", "final"),
    [
        ("add.u32", 5, 5 + sum(range(50))), ("min.s32", 1000, 0), ("max.u32", 3, 49), ("or.b32", 0, 63), ("and.b32",
        0xFF, 0), ("xor.b32", 0, 1), ("inc.u32", 0, 0), ("dec.u32", 7, None), ("exch.b32", 9, None), ("add.u64", 1 <<
        40, (1 << 40) + 1225), ("add.f32", 0.5, 1225.5), ("add.f64", 0.25, 1225.25), ("max.s64", -5, 49),
        ("add.noftz.f16x2", 0, None), ],
)  # fmt: skip
def test_atomics(space: str, operation: str, initial: float, final: float | None) -> None:
    kind = operation.split(".")[-1]
    nbits = 32 if kind == "f16x2" else int(kind[1:])
    dtype = {"f16x2": "f2", "f32": "f4", "f64": "f8"}.get(kind, f"{'i' if kind[0] == 's' else 'u'}{nbits // 8}")
    cell = np.full(2 if kind == "f16x2" else 1, initial, dtype)
    old = np.zeros(50, f"u{nbits // 8}")
    convert = {
        "f16x2": "cvt.rn.f32.u32 %f, %r0; cvt.rn.f16x2.f32 %v, %f, %f;", "f32": "cvt.rn.f32.u32 %v, %r0;",
        "f64": "cvt.rn.f64.u32 %v, %r0;",
    }.get(kind, f"cvt.u{nbits}.u32 %v, %r0;")  # fmt: skip
    where = "%x0" if space == "global" else "%r1"
    text = (
        HEADER
        + f""".visible .entry k(.param .u64 a, .param .u64 b) {{ .reg .b32 %r<9>; .reg .b64 %x<9>;
.reg .b{nbits} %v, %w;
.reg .f32 %f; .shared .align 8 .b8 cell[8]; ld.param.u64 %x0, [a]; ld.param.u64 %x1, [b]; mov.u32 %r0, %tid.x;
mov.u32 %r1, cell;
ld.global.b{nbits} %w, [%x0]; st.shared.b{nbits} [%r1], %w; bar.sync 0; {convert}
atom.{space}.{operation} %w, [{where}], %v; mul.wide.u32 %x2, %r0, {nbits // 8}; add.u64 %x3, %x1, %x2;
st.global.b{nbits} [%x3], %w; bar.sync 0; ld.shared.b{nbits} %w, [%r1];
{"" if space == "global" else f"st.global.b{nbits} [%x0], %w;"} ret; }}"""
    )
    run(text, "k", 1, 50, [cell, old])
    if operation == "exch.b32":
        assert sorted([*old.tolist(), int(cell[0])]) == sorted([9, *range(50)])
    elif operation == "dec.u32":
        value = 7
        for t in range(50):
            value = t if value == 0 or value > t else value - 1
        assert cell[0] == value
    elif kind == "f16x2":
        assert cell.tolist() == [1225.0, 1225.0]
    elif operation == "inc.u32":
        value = 0
        for t in range(50):
            value = 0 if value >= t else value + 1
        assert cell[0] == value
    else:
        assert cell[0] == final


def test_red_cas_and_generic_atomics() -> None:
    cells = np.zeros(3, np.uint32)
    text = (
        HEADER
        + """.visible .entry k(.param .u64 a) { .reg .b32 %r<9>; .reg .b64 %x<3>; .reg .pred %p; ld.param.u64 %x0, [a];
mov.u32 %r0, %tid.x; red.global.add.u32 [%x0], 2; setp.lt.u32 %p, %r0, 9; @%p red.add.u32 [%x0+4], %r0;
$again: ld.volatile.u32 %r1, [%x0+8]; add.u32 %r2, %r1, 3; atom.acq_rel.gpu.cas.b32 %r3, [%x0+8], %r1, %r2;
setp.ne.u32 %p, %r3, %r1; @%p bra $again; ret; }"""
    )
    run(text, "k", 2, 50, [cells])
    assert cells.tolist() == [200, 72, 300]


def test_asynchronous_copy() -> None:
    source, out = np.arange(1, 201, dtype=np.uint32), np.zeros(200, np.uint32)
    text = (
        HEADER
        + """.visible .entry k(.param .u64 a, .param .u64 b) { .reg .b32 %r<9>; .reg .b64 %x<9>; .reg .pred %p;
.shared .align 16 .b8 s[800]; ld.param.u64 %x0, [a]; ld.param.u64 %x1, [b]; mov.u32 %r0, %tid.x; mov.u32 %r1, s;
mad.lo.u32 %r1, %r0, 16, %r1; mul.wide.u32 %x2, %r0, 16; add.u64 %x3, %x0, %x2; add.u64 %x4, %x1, %x2;
setp.lt.u32 %p, %r0, 10; @%p bra $all; and.b32 %r2, %r0, 15; cp.async.ca.shared.global [%r1], [%x3], 16, %r2; bra $wait;
$all: cp.async.cg.shared.global.L2::128B [%r1], [%x3], 16; $wait: cp.async.commit_group; cp.async.wait_group 0;
ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%r1]; st.global.v4.u32 [%x4], {%r3, %r4, %r5, %r6}; ret; }"""
    )
    run(text, "k", 1, 50, [source, out])
    expected = source.view(np.uint8).reshape(50, 16).copy()
    for t in range(10, 50):
        expected[t, t & 15 :] = 0
    assert np.array_equal(out.view(np.uint8).reshape(50, 16), expected)


def test_offsets_of_the_abi() -> None:
    """abi.py against the C header's comments and the harness's ctypes structs."""
    from tests.vgpusim.codegen.harness import Launch, Services, Thread

    header = (Path(__file__).parents[3] / "daemon/vgpusim/device/vgx_sim_abi.h").read_text()
    named = {m[1]: int(m[2]) for m in re.finditer(r"(\w+)(?:\[\w+\])?;\s*/\*\s*(\d+)\b", header)}
    for name, offset in (
        ("params", abi.LAUNCH_PARAMS), ("grid", abi.LAUNCH_GRID),
        ("shared_static_nbytes", abi.LAUNCH_SHARED_STATIC), ("shared_dynamic_nbytes", abi.LAUNCH_SHARED_DYNAMIC),
        ("symbols", abi.LAUNCH_SYMBOLS), ("services", abi.LAUNCH_SERVICES), ("launch_id", abi.LAUNCH_ID),
    ):  # fmt: skip
        assert named[name] == offset == getattr(Launch, name).offset
    for name, offset in (
        ("shared", abi.THREAD_SHARED), ("frames", abi.THREAD_FRAMES), ("sm", abi.THREAD_SM), ("cta", abi.THREAD_CTA),
        ("local", abi.THREAD_LOCAL), ("counters", abi.THREAD_COUNTERS), ("known", abi.THREAD_KNOWN),
        ("known_shared_nbytes", abi.THREAD_KNOWN_SHARED),
    ):  # fmt: skip
        assert named[name] == offset == getattr(Thread, name).offset
    assert f"sizeof(struct vgx_sim_thread) == {ctypes.sizeof(Thread)}" in header
    at = 0
    for name, kind in emit_code.MEMBERS.items():
        assert named[name] == at, name
        at += {"ptr": 8, "i64": 8, "i32": 4, "[3 x i32]": 12}[kind]
    turns = re.search(r"enum vgx_sim_turns \{(.*?)\}", header, re.S)
    assert turns
    assert re.findall(r"VGX_SIM_(\w+),", turns[1]) == [each.name for each in emit_code.Turns]
    assert f"VGX_SIM_BARRIER_COUNT {emit_layout.BARRIER_WORDS // 8}u" in header
    order = re.findall(r"\(\*(\w+)\)\(struct vgx_sim_services", header)
    *others, absent, change, last, pair, end_cta = order
    words = ("own_begin", "changed", "watches_all")
    unset = ("unset_read", "unset_stored", "stores_unset")
    named_here = [*others, "watch", absent, *words, change, last, *unset, pair, end_cta]
    assert named_here == [name for name, *_ in Services._fields_]
    assert Services.own_begin.offset == abi.SERVICES_OWN_BEGIN
    assert Services.changed.offset == abi.SERVICES_CHANGED
    assert Services.change.offset == abi.SERVICE_CHANGE
    assert Services.unset.offset == abi.SERVICE_UNSET
    assert Services.pair.offset == abi.SERVICE_PAIR
    assert f"VGX_SIM_ABI_VERSION {abi.VERSION} " in header


def test_disk_cache(tmp_path: Path) -> None:
    """The same kernel comes back byte for byte; another block shape or a damaged file does not."""
    text = HEADER + ".visible .entry k() { ret; }"
    cache = DiskCache(tmp_path)
    module = PtxModule.parse(text)
    first = compile_entry(module, "k", (32, 1, 1), cache=cache)
    (stored,) = tmp_path.rglob("*.bin")
    assert compile_entry(PtxModule.parse(text), "k", (32, 1, 1), cache=cache) == first
    compile_entry(module, "k", (64, 1, 1), cache=cache)
    assert len(list(tmp_path.rglob("*.bin"))) == 2
    stored.write_bytes(stored.read_bytes()[:-1] + b"?")
    assert compile_entry(module, "k", (32, 1, 1), cache=cache) == first
