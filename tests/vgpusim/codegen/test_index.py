"""Loads at indices that are consecutive in most warps, which only the run shows; stores of columns of a tile."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest
from vgpusim.codegen.compile import lower

from tests.vgpusim.codegen.harness import HEADER, module_of, run

_MAP_NORESERVE = 0x4000
BLOCKS = [(64, 1, 1), (16, 16, 1), (8, 8, 1), (4, 16, 1)]
_HEAD = """.visible .entry k(.param .u64 out, .param .u64 table, .param .u64 indices, .param .u32 first)
{ .reg .b64 %x<12>; .reg .b32 %r<12>; .reg .f32 %f<4>; .reg .pred %p<3>; .shared .align 8 .b8 tile[8192];
ld.param.u64 %x0, [out]; ld.param.u64 %x1, [table]; ld.param.u64 %x2, [indices]; ld.param.u32 %r0, [first];
mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x; mad.lo.s32 %r4, %r2, %r3, %r1;
mul.wide.u32 %x3, %r4, 4; add.u64 %x4, %x2, %x3; add.u64 %x5, %x0, %x3;
"""
# %r5 is the thread's index: what `indices` has for it, and `first`. Scaled, and added to the table's address.
_INDEX = "ld.global.u32 %r5, [%x4]; add.s32 %r5, %r5, %r0;"
FORMS = {
    "mul.wide": f"{_INDEX} mul.wide.s32 %x6, %r5, 4; add.s64 %x7, %x1, %x6;",
    "mad.wide": f"{_INDEX} mad.wide.s32 %x7, %r5, 4, %x1;",
    "cvt, shl": f"{_INDEX} cvt.s64.s32 %x6, %r5; add.s64 %x6, %x6, 3; shl.b64 %x6, %x6, 2; add.s64 %x7, %x6, %x1; "
    "add.s64 %x7, %x7, -12;",
    "unsigned mul.wide": f"{_INDEX} mul.wide.u32 %x6, %r5, 4; add.s64 %x7, %x1, %x6;",
    "unsigned mad.wide": f"{_INDEX} mad.wide.u32 %x7, %r5, 4, %x1;",
    "unsigned cvt, shl": f"{_INDEX} cvt.u64.u32 %x6, %r5; shl.b64 %x6, %x6, 2; add.s64 %x7, %x6, %x1;",
    "overwritten": f"{_INDEX} mul.wide.s32 %x7, %r5, 4; add.s64 %x7, %x7, %x1;",
}


def indexed(form: str, block: tuple[int, int, int], indices: np.ndarray, first: int = 0, offset: int = 0) -> np.ndarray:
    """What each thread loads from a table of consecutive numbers, `offset` bytes beyond its index."""
    out, table = np.zeros(indices.size, np.uint32), np.arange(4096, dtype=np.uint32)
    body = f"{_HEAD}{FORMS[form]} ld.global.nc.u32 %r6, [%x7+{offset}]; st.global.u32 [%x5], %r6; ret; }}"
    run(HEADER + body, "k", 1, block, [out, table, indices.astype(np.int32), first])
    return out


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("form", FORMS)
def test_loads(form: str, block: tuple[int, int, int]) -> None:
    """Rows, one row that ends, one lane elsewhere, no order at all, and the same element for all."""
    count = block[0] * block[1]
    row = np.arange(count)
    odd = row.copy()
    odd[[5, count - 1]] = 1000, 7
    chosen = np.random.default_rng(1).permutation(count)
    for indices in (row, np.minimum(row, count - 9), odd, chosen, np.full(count, 9), row[::-1]):
        assert np.array_equal(indexed(form, block, indices), indices)
        assert np.array_equal(indexed(form, block, indices, first=100, offset=8), indices + 102)


@pytest.mark.parametrize("block", BLOCKS)
def test_only_the_lanes_that_act(block: tuple[int, int, int]) -> None:
    """The others' indices are out of reach."""
    count = block[0] * block[1]
    acts = np.arange(count) % 16 < 10
    indices = np.where(acts, np.arange(count), 1 << 30)
    body = f"""{_HEAD}{FORMS["mul.wide"]} mov.u32 %r6, 77; setp.lt.s32 %p0, %r5, 4096; @!%p0 bra $on;
ld.global.u32 %r6, [%x7]; $on: st.global.u32 [%x5], %r6; ret; }}"""
    out, table = np.zeros(count, np.uint32), np.arange(4096, dtype=np.uint32)
    run(HEADER + body, "k", 1, block, [out, table, indices.astype(np.int32), 0])
    assert np.array_equal(out, np.where(acts, indices, 77))


@pytest.mark.parametrize("block", [(32, 1, 1), (16, 2, 1)])
@pytest.mark.parametrize("start", [0, (1 << 31) - 5, (1 << 31) - 32, -(1 << 31), -5, -32, -40])
@pytest.mark.parametrize("signed", [True, False])
def test_indices_that_wrap(block: tuple[int, int, int], start: int, signed: bool) -> None:
    """Consecutive modulo 2**32 alone: such indices are 16 GiB apart."""
    size = 1 << 34
    low = -(1 << 31) if signed else 0
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE) as memory:
        places = (start + np.arange(32) - low) % (1 << 32) + low
        for lane, place in enumerate(places.tolist()):
            memory[4 * (place - low) : 4 * (place - low) + 4] = (lane + 1).to_bytes(4, "little")
        base = ctypes.c_char.from_buffer(memory)
        table, out = np.uint64(ctypes.addressof(base) - 4 * low), np.zeros(32, np.uint32)
        del base
        form = FORMS["mul.wide" if signed else "unsigned mul.wide"]
        body = f"{_HEAD}{form} ld.global.u32 %r6, [%x7]; st.global.u32 [%x5], %r6; ret; }}"
        run(HEADER + body, "k", 1, block, [out, table, places.astype(np.uint32).astype(np.int32), 0])
    assert np.array_equal(out, np.arange(1, 33))


def matrix(signed: bool) -> str:
    """A load at (tid.y * n + tid.x) + first, where n and first are `indices` and `first`."""
    kind = "s32" if signed else "u32"
    return f"""{_HEAD} cvt.u32.u64 %r5, %x2; mad.lo.s32 %r6, %r2, %r5, %r1; add.s32 %r6, %r6, %r0;
mul.wide.{kind} %x6, %r6, 4; add.s64 %x7, %x1, %x6; ld.global.u32 %r7, [%x7]; st.global.u32 [%x5], %r7; ret; }}"""


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("signed", [True, False])
def test_rows_of_a_matrix(block: tuple[int, int, int], signed: bool) -> None:
    """No lane's index is compared: each row of threads has neighbours."""
    table, out = np.arange(4096, dtype=np.uint32), np.zeros(block[0] * block[1], np.uint32)
    for columns, first in ((block[0], 0), (17, 5), (0, 9), (100, 1)):
        run(HEADER + matrix(signed), "k", 1, block, [out, table, np.uint64(columns), first])
        rows = np.arange(block[1])[:, None] * columns + np.arange(block[0])
        assert np.array_equal(out, rows.ravel() + first)
    text, _ = lower(module_of(HEADER + matrix(signed)), "k", block)
    assert ("icmp ne <32 x i32>" in text) == (block[0] == 4 and not signed)


@pytest.mark.parametrize("start", [0, -5, -16, -17, -40])
def test_rows_of_a_matrix_that_wrap(start: int) -> None:
    """Unsigned indices whose rows go over 2**32, or end there."""
    with mmap.mmap(-1, 1 << 34, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE) as memory:
        places = ((start + np.arange(16) + 8 * np.arange(2)[:, None]) % (1 << 32)).ravel()
        for place in places.tolist():
            memory[4 * place : 4 * place + 4] = (place % 1000).to_bytes(4, "little")
        base = ctypes.c_char.from_buffer(memory)
        table, out = np.uint64(ctypes.addressof(base)), np.zeros(32, np.uint32)
        del base
        run(HEADER + matrix(signed=False), "k", 1, (16, 2, 1), [out, table, np.uint64(8), start])
    assert np.array_equal(out, places % 1000)


@pytest.mark.parametrize("pitch", [33, 34, 32, 17])
@pytest.mark.parametrize("block", [(16, 16, 1), (8, 8, 1), (32, 2, 1)])
def test_columns_of_a_tile(block: tuple[int, int, int], pitch: int) -> None:
    """Threads store a tile by columns, whose neighbours are a row's length of lanes apart, and load it likewise."""
    count, width = block[0] * block[1], block[0]
    rows = np.arange(count) % width
    columns = np.arange(count) // width
    body = f"""{_HEAD} mad.lo.s32 %r5, %r1, {pitch}, %r2; shl.b32 %r5, %r5, 2; mov.u32 %r6, tile; add.s32 %r6, %r6, %r5;
add.s32 %r7, %r4, %r0; st.shared.u32 [%r6], %r7; bar.sync 0;
shl.b32 %r8, %r4, 2; mov.u32 %r9, tile; add.s32 %r9, %r9, %r8; ld.shared.u32 %r10, [%r9];
st.global.u32 [%x5], %r10; ret; }}"""
    out = np.zeros(count, np.uint32)
    run(HEADER + body, "k", 1, block, [out, out, out, 5])
    places = rows * pitch + columns
    if len(set(places.tolist())) < count:
        return  # rows overlap: warps take turns in an order that PTX does not define
    written = places < count
    assert np.array_equal(out[places[written]], (np.arange(count) + 5)[written])
