"""Accesses of some lanes, compiled as for a processor without masked gathers and scatters."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator

import numpy as np
import pytest
from vgpusim.codegen import emit_masked, native

from tests.vgpusim.codegen import harness
from tests.vgpusim.codegen.harness import HEADER, run

THREADS = 128
NOWHERE = 0x10  # no address of this process

# Each thread that acts loads from its place, and stores to its other one.
_MOVE = """.visible .entry k(.param .u64 from, .param .u64 to, .param .u64 acts) {{
.reg .b32 %r<3>; .reg .b64 %x<8>; .reg .{reg} %v; .reg .pred %p;
ld.param.u64 %x0, [from]; ld.param.u64 %x1, [to]; ld.param.u64 %x2, [acts]; mov.u32 %r0, %tid.x;
mad.wide.u32 %x3, %r0, 4, %x2; ld.global.u32 %r1, [%x3]; setp.eq.u32 %p, %r1, 0;
mad.wide.u32 %x4, %r0, 8, %x0; ld.global.u64 %x5, [%x4]; mad.wide.u32 %x6, %r0, 8, %x1; ld.global.u64 %x7, [%x6];
@%p bra END; ld.global.{kind} %v, [%x5]; st.global.{kind} [%x7], %v; END: ret; }}
"""


@pytest.fixture(autouse=True, params=["inline", "shared"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(native, "has_masked_gathers", lambda: False)
    monkeypatch.setattr(native, "has_wide_gathers", lambda: False)
    if request.param == "shared":
        monkeypatch.setattr(emit_masked, "_INLINE_INSTRUCTIONS", 0)
    harness._compiled.cache_clear()
    yield
    harness._compiled.cache_clear()


@pytest.mark.parametrize("kind", ["b8", "b16", "b32", "b64"])
def test_places_of_each_lane(kind: str) -> None:
    """No lane touches memory that does not act, and of lanes with one address the highest wins."""
    rng = np.random.default_rng(7)
    nbytes = int(kind[1:]) // 8
    acts = np.zeros(THREADS, np.uint32)
    acts[:32], acts[32:64], acts[70] = 1, rng.integers(0, 2, 32), 1  # all lanes of a warp, some, one, none
    source = rng.integers(1, 1 << 8 * nbytes - 1, THREADS, dtype=f"u{nbytes}")
    out, expected = np.zeros(THREADS, f"u{nbytes}"), np.zeros(THREADS, f"u{nbytes}")
    read, write = rng.permutation(THREADS), rng.integers(0, 16, THREADS) + 16 * (np.arange(THREADS) // 32)
    places = [np.where(acts, a.ctypes.data + nbytes * i, NOWHERE) for a, i in ((source, read), (out, write))]
    text = HEADER + _MOVE.format(kind=kind, reg=f"b{max(16, 8 * nbytes)}")
    run(text, "k", 1, THREADS, [*(p.astype(np.uint64) for p in places), acts])
    for thread in np.flatnonzero(acts):
        expected[write[thread]] = source[read[thread]]
    assert np.array_equal(out, expected)


# Sixteen columns: both halves of a warp have the same addresses, or those of a row of 16 records each.
_COLUMNS = """.visible .entry k(.param .u64 from, .param .u64 to, .param .u32 low, .param .u32 high) {{
.reg .b32 %r<6>; .reg .b64 %x<6>; .reg .b{nbits} %v; .reg .pred %p, %q;
ld.param.u64 %x0, [from]; ld.param.u64 %x1, [to]; ld.param.u32 %r0, [low]; ld.param.u32 %r1, [high];
mov.u32 %r2, %tid.x; and.b32 %r3, %r2, 31; setp.ge.u32 %p, %r3, %r0; setp.lt.u32 %q, %r3, %r1; and.pred %p, %p, %q;
rem.u32 %r4, %r2, {columns}; mul.wide.u32 %x2, %r4, 64; add.u64 %x3, %x0, %x2; add.u64 %x4, %x1, %x2;
mad.wide.u32 %x5, %r2, {nbytes}, %x1;
@!%p bra END; ld.global.b{nbits} %v, [%x3]; {store} END: ret; }}
"""


@pytest.mark.parametrize("nbits", [32, 64])
@pytest.mark.parametrize("columns", [16, 32])
@pytest.mark.parametrize(("low", "high"), [(0, 32), (0, 16), (16, 32), (5, 20), (31, 32), (0, 0)])
def test_columns(nbits: int, columns: int, low: int, high: int) -> None:
    """Lanes of both halves of a warp, of one, of parts, and none."""
    nbytes = nbits // 8
    source = np.random.default_rng(3).integers(1, 1 << 31, (columns, 64 // nbytes), dtype=f"u{nbytes}")
    lanes = np.arange(64)
    acts = (lanes % 32 >= low) & (lanes % 32 < high)
    loaded, stored = np.zeros(64, f"u{nbytes}"), np.zeros_like(source)
    for out, store in (
        (loaded, "st.global.b{} [%x5], %v;"),
        (stored, "cvt.u{0}.u32 %v, %r2; st.global.b{0} [%x4], %v;"),
    ):
        text = HEADER + _COLUMNS.format(nbits=nbits, nbytes=nbytes, columns=columns, store=store.format(nbits))
        run(text.replace("cvt.u32.u32", "mov.u32"), "k", 1, 64, [source, out, low, high])
    assert np.array_equal(loaded, np.where(acts, source[lanes % columns, 0], 0))
    expected = np.zeros_like(source)
    for lane in lanes[acts]:
        expected[lane % columns, 0] = lane
    assert np.array_equal(stored, expected)


@pytest.mark.parametrize("nbytes", [1, 2, 4, 8])
def test_a_row_ends_with_the_last_page(nbytes: int) -> None:
    """A row of which some lanes act is loaded whole only where that reaches no other page."""
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    at = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(at + mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
    memory = np.frombuffer(pages, f"u{nbytes}", mmap.PAGESIZE // nbytes)
    memory[:] = np.random.default_rng(2).integers(1, 256, len(memory))
    text = f""".visible .entry k(.param .u64 from, .param .u64 to, .param .u32 n) {{
.reg .b32 %r<6>; .reg .b64 %x<6>; .reg .b{max(16, 8 * nbytes)} %v; .reg .pred %p;
ld.param.u64 %x0, [from]; ld.param.u64 %x1, [to]; ld.param.u32 %r0, [n]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31;
setp.ge.s32 %p, %r2, %r0; mul.wide.s32 %x2, %r1, {nbytes}; add.s64 %x3, %x0, %x2; add.s64 %x4, %x1, %x2;
@%p bra END; ld.global.b{8 * nbytes} %v, [%x3]; st.global.b{8 * nbytes} [%x4], %v; END: ret; }}"""
    for acting in (0, 1, 9, 31):  # the second warp's acting lanes have the last elements
        start, out = len(memory) - 32 - acting, np.zeros(64, f"u{nbytes}")
        run(HEADER + text, "k", 1, 64, [memory[start:], out, acting])
        expected = np.zeros_like(out)
        expected[:acting], expected[32 : 32 + acting] = memory[start:][:acting], memory[start + 32 :]
        assert np.array_equal(out, expected)
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(at + mmap.PAGESIZE), mmap.PAGESIZE, mmap.PROT_READ)


# A tile whose rows have 16 elements; which lanes act is read.
_TILE = """.visible .entry k(.param .u64 from, .param .u64 to, .param .u64 acts, .param .u32 pitch) {{
.reg .b32 %r<6>; .reg .b64 %x<8>; .reg .b{nbits} %v; .reg .pred %p;
ld.param.u64 %x0, [from]; ld.param.u64 %x1, [to]; ld.param.u64 %x2, [acts]; ld.param.u32 %r0, [pitch];
mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mad.lo.u32 %r3, %r2, 16, %r1; mad.wide.u32 %x3, %r3, 4, %x2;
ld.global.u32 %r4, [%x3]; setp.eq.u32 %p, %r4, 0; mad.lo.s32 %r5, %r2, {pitch}, %r1;
mul.wide.s32 %x4, %r5, {nbytes}; add.s64 %x5, %x0, %x4; add.s64 %x6, %x1, %x4;
@%p bra END; ld.global.b{nbits} %v, [%x5]; st.global.b{nbits} [%x6], %v; END: ret; }}
"""


@pytest.mark.parametrize("nbits", [8, 16, 32, 64])
@pytest.mark.parametrize("pitch", ["20", "%r0"])  # how far rows are apart is known, or read
def test_tiles(nbits: int, pitch: str) -> None:
    """Rows that all lanes take, none, and some; the other elements keep their values."""
    rng, nbytes = np.random.default_rng(9), nbits // 8
    acts = rng.integers(0, 2, (16, 16), dtype=np.uint32)
    acts[0], acts[1], acts[2], acts[4:6], acts[7] = 0, 1, 1, 0, 1
    source = rng.integers(1, 1 << (nbits - 1), (16, 20), dtype=f"u{nbytes}")
    out = np.zeros_like(source)
    text = HEADER + _TILE.format(nbits=nbits, nbytes=nbytes, pitch=pitch).replace(".b8 %v;", ".b16 %v;", 1)
    run(text, "k", 1, (16, 16, 1), [source, out, acts, 20])
    assert np.array_equal(out, np.where(np.pad(acts, ((0, 0), (0, 4))), source, 0))
