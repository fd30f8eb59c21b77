"""Arithmetic on thread numbers in blocks of every shape, and accesses indexed by the results, against numpy. The
compiler keeps a value that is linear in the bits of the lane number as lane 0's scalar, and merges such accesses."""

from __future__ import annotations

import ctypes
import mmap
import os
import random

import numpy as np
import pytest
from numpy.typing import NDArray
from vgpusim.codegen import passes
from vgpusim.codegen.compile import PtxModule
from vgpusim.codegen.lane_pattern import UNIFORM, VARYING, Pattern, digit, linear
from vgpusim.codegen.uniformity import thread_shape

from tests.vgpusim.codegen.harness import HEADER, run

Lanes = NDArray[np.uint32]
BLOCKS = [
    (16, 16, 1), (8, 8, 1), (4, 4, 4), (2, 2, 16), (1, 64, 1), (1, 1, 40), (16, 3, 1), (8, 3, 3), (4, 2, 5), (2, 16, 3),
    (3, 5, 4), (64, 2, 1), (32, 2, 2), (70, 1, 1), (4, 3, 8),
]  # fmt: skip
HEAD = """.visible .entry k(.param .u64 out, .param .u64 in, .param .u32 n) {
.reg .b32 %t<9>, %v<40>, %s<40>; .reg .b64 %x<20>; .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b64 %d<9>;
ld.param.u64 %x0, [out]; ld.param.u64 %x1, [in]; ld.param.u32 %t6, [n];
mov.u32 %t0, %tid.x; mov.u32 %t1, %tid.y; mov.u32 %t2, %tid.z; mov.u32 %t7, %laneid;
mov.u32 %t3, %ntid.x; mov.u32 %t4, %ntid.y; mad.lo.u32 %t8, %t2, %t4, %t1; mad.lo.u32 %t5, %t8, %t3, %t0;
"""


def numbers(block: tuple[int, int, int]) -> dict[str, Lanes]:
    """%t0..%t7 of each thread."""
    width, height, depth = block
    flat = np.arange(width * height * depth, dtype=np.uint32)
    same = np.ones_like(flat)
    return {
        "%t0": flat % width, "%t1": flat // width % height, "%t2": flat // (width * height), "%t3": same * width,
        "%t4": same * height, "%t5": flat, "%t6": same * 1000, "%t7": flat % 32,
    }  # fmt: skip


@pytest.mark.parametrize("block", BLOCKS)
def test_thread_shapes(block: tuple[int, int, int]) -> None:
    """The patterns that the analysis derives for thread numbers hold in every warp."""
    threads = numbers(block)
    for axis in range(3):
        shape, values = thread_shape(axis, block), threads[f"%t{axis}"]
        for first in range(0, len(values), 32):
            assert values[first] % shape.alignment == 0
            if shape.pattern.known:
                lanes = values[first : first + 32]
                assert [int(v) - int(lanes[0]) for v in lanes] == shape.pattern.offsets()[: len(lanes)]


def expression(rng: random.Random, values: dict[str, Lanes], lines: list[str]) -> str:
    """Add one instruction to the program. Returns the name of the result."""
    names = list(values)
    a, b, n = rng.choice(names), rng.choice(names), rng.choice([0, 1, 2, 3, 4, 5, 7, 8])
    target, x, y = f"%v{len(lines)}", values[a], values[b]
    mask = rng.choice([1, 3, 7, 15, 16, 31, 0xFFFFFFF0, 0x33])
    factor = rng.choice([1, 2, 3, 4, 20, 64, 0xFFFFFFFF])
    m, f, thousand = np.uint32(mask), np.uint32(factor), np.uint32(1000)
    text, result = rng.choice([
        (f"add.u32 {target}, {a}, {b};", x + y), (f"sub.s32 {target}, {a}, {b};", x - y),
        (f"shl.b32 {target}, {a}, {n};", x << n), (f"shr.u32 {target}, {a}, {n};", x >> n),
        (f"shr.s32 {target}, {a}, {n};", (x.view(np.int32) >> n).view(np.uint32)),
        (f"and.b32 {target}, {a}, {mask};", x & m), (f"or.b32 {target}, {a}, {mask};", x | m),
        (f"xor.b32 {target}, {a}, {mask};", x ^ m), (f"mul.lo.u32 {target}, {a}, {b};", x * y),
        (f"mul.lo.s32 {target}, {a}, {factor};", x * f), (f"mad.lo.s32 {target}, {a}, {factor}, {b};", x * f + y),
        (f"mad.lo.u32 {target}, {a}, %t6, {b};", x * thousand + y), (f"mov.u32 {target}, {a};", x),
        (f"mov.u32 {target}, {mask};", np.full_like(x, m)), (f"or.b32 {target}, {a}, {b};", x | y),
        (f"xor.b32 {target}, {a}, {b};", x ^ y),
    ])  # fmt: skip
    lines.append(text)
    values[target] = result
    return target


@pytest.mark.parametrize("block", BLOCKS)
def test_random_index_arithmetic(block: tuple[int, int, int]) -> None:
    """32-bit arithmetic wraps; every intermediate value is stored, and the result of a loop over the last two."""
    for seed in range(2):
        rng = random.Random(f"{seed} {block}")
        values, lines = numbers(block), []
        targets = [expression(rng, values, lines) for _ in range(30)]
        a, b = targets[-2:]
        lines.append(f"mov.u32 %v38, {a}; mov.u32 %v39, 0; $top: add.u32 %v38, %v38, {b}; add.u32 %v39, %v39, 1;"
                     "setp.lt.u32 %p0, %v39, 3; @%p0 bra $top;")  # fmt: skip
        values["%v38"] = values[a] + values[b] * np.uint32(3)
        targets.append("%v38")
        count = len(targets)
        stores = "".join(f"st.global.u32 [%x3+{4 * i}], {name};" for i, name in enumerate(targets))
        body = "\n".join(lines) + f"\nmul.wide.u32 %x2, %t5, {4 * count}; add.u64 %x3, %x0, %x2; {stores} ret; }}"
        out = np.zeros((len(values["%t0"]), count), np.uint32)
        run(HEADER + HEAD + body, "k", 1, block, [out, out, 1000])
        for index, name in enumerate(targets):
            assert np.array_equal(out[:, index], values[name]), f"{name} in block {block}, seed {seed}:\n{body}"


INDICES = [
    ("column", "mov.u32 %v0, %t0;", lambda t: t["%t0"]),
    ("row", "mov.u32 %v0, %t1;", lambda t: t["%t1"]),
    ("tile", "mad.lo.u32 %v0, %t1, 20, %t0;", lambda t: t["%t1"] * 20 + t["%t0"]),
    ("transposed", "mad.lo.u32 %v0, %t0, 17, %t1;", lambda t: t["%t0"] * 17 + t["%t1"]),
    ("spread", "shl.b32 %v0, %t0, 1; add.u32 %v0, %v0, %t2;", lambda t: t["%t0"] * 2 + t["%t2"]),
    ("run-time rows", "mul.lo.u32 %v1, %t1, %t6; add.u32 %v0, %v1, %t0;", lambda t: t["%t1"] * 37 + t["%t0"]),
    ("run-time row", "mul.lo.u32 %v1, %t1, %t6; add.u32 %v0, %v1, 3;", lambda t: t["%t1"] * 37 + 3),
    ("groups", "shr.u32 %v1, %t5, 3; and.b32 %v2, %t5, 7; shl.b32 %v1, %v1, 4; add.u32 %v0, %v1, %v2;",
     lambda t: t["%t5"] // 8 * 16 + t["%t5"] % 8),
]  # fmt: skip


@pytest.mark.parametrize("block", [(16, 16, 1), (8, 9, 1), (4, 4, 4), (40, 1, 1)])
@pytest.mark.parametrize("number", range(len(INDICES)), ids=lambda number: INDICES[number][0])
@pytest.mark.parametrize("word", [True, False])
def test_accesses(block: tuple[int, int, int], number: int, word: bool) -> None:
    """Loads and stores by whole warps and under a guard, with signed and unsigned indices. Elements of inactive lanes
    stay unchanged. Where threads of a warp store to one element, the last thread's value remains."""
    _, code, model = INDICES[number]
    nbytes = 4 if word else (1, 2, 8)[(number + block[0] // 8) % 3]
    threads = numbers(block) | {"%t6": np.uint32(37)}
    where = model(threads).astype(np.int64)
    flat = threads["%t5"]
    table = np.random.default_rng(3).integers(0, 256, (int(where.max()) + 1) * nbytes, np.uint8).view(f"u{nbytes}")
    reg = {1: "%h0", 2: "%h0", 4: "%v9", 8: "%d0"}[nbytes]
    name = f"b{8 * nbytes}"
    every = flat >= 0
    for guard, acts, wide in (
        ("", every, "mul.wide.s32"), ("", every, "mul.wide.u32"), ("@%p0", flat % 5 != 2, "mul.wide.s32"),
        ("@%p1", ~every, "mul.wide.s32"),
    ):  # fmt: skip
        loads, stored = np.zeros(flat.size, table.dtype), np.zeros_like(table)
        body = f"""rem.u32 %v3, %t5, 5; setp.ne.u32 %p0, %v3, 2; setp.lt.u32 %p1, %t5, 0; {code}
{wide} %x2, %v0, {nbytes}; add.u64 %x3, %x1, %x2; mov.b16 %h0, 0; mov.b32 %v9, 0; mov.b64 %d0, 0;
{guard} ld.global.{name} {reg}, [%x3];
mul.wide.u32 %x4, %t5, {nbytes}; add.u64 %x5, %x0, %x4; st.global.{name} [%x5], {reg};
add.u64 %x7, %x0, {nbytes * flat.size}; add.u64 %x8, %x7, %x2; {guard} st.global.{name} [%x8], {reg};
ret; }}"""
        memory = np.concatenate([loads, stored])
        run(HEADER + HEAD + body, "k", 1, block, [memory, table, 37])
        loads, stored = memory[: flat.size], memory[flat.size :]
        expected = np.where(acts, table[where], 0)
        assert np.array_equal(loads, expected)
        left = np.zeros_like(table)
        left[where[acts]] = expected[acts]
        assert np.array_equal(stored, left)


@pytest.mark.parametrize("block", [(16, 4, 1), (8, 8, 1), (64, 1, 1)])
@pytest.mark.parametrize("wide", ["mul.wide.u32", "mul.wide.s32"])
def test_indices_below_zero_of_lanes_that_do_not_act(block: tuple[int, int, int], wide: str) -> None:
    """Lanes access adjacent elements only where the index did not wrap."""
    threads = numbers(block)
    acts = threads["%t0"] >= 3
    where = threads["%t1"].astype(np.int64) * 1000 + threads["%t0"] - 3
    table, out = np.arange(where.max() + 1, dtype=np.uint32), np.zeros(acts.size, np.uint32)
    body = f"""setp.ge.u32 %p0, %t0, 3; mul.lo.u32 %v0, %t1, %t6; add.u32 %v0, %v0, %t0; sub.u32 %v0, %v0, 3;
{wide} %x2, %v0, 4; add.u64 %x3, %x1, %x2; mov.u32 %v1, 77; @%p0 ld.global.u32 %v1, [%x3];
mul.wide.u32 %x4, %t5, 4; add.u64 %x5, %x0, %x4; st.global.u32 [%x5], %v1; ret; }}"""
    run(HEADER + HEAD + body, "k", 1, block, [out, table, 1000])
    assert np.array_equal(out, np.where(acts, where, 77))


@pytest.mark.parametrize("block", [(16, 16, 1), (8, 4, 2), (32, 2, 1)])
def test_a_tile_in_shared_memory(block: tuple[int, int, int]) -> None:
    """Every thread reads one element of its row and one of its column, from a tile that the block filled."""
    threads = numbers(block)
    flat, width = threads["%t5"], block[0]
    body = f""".shared .align 16 .b8 tile[{4 * flat.size}];
shl.b32 %v0, %t5, 2; mov.u32 %v1, tile; add.u32 %v2, %v1, %v0; mad.lo.u32 %v3, %t5, 3, 1; st.shared.u32 [%v2], %v3;
bar.sync 0; shl.b32 %v4, %t0, 2; add.u32 %v5, %v1, %v4; ld.shared.u32 %v6, [%v5+{4 * width}];
mul.lo.u32 %v7, %t1, {4 * width}; add.u32 %v8, %v1, %v7; ld.shared.u32 %v9, [%v8+4];
mad.lo.u32 %v10, %v6, 1000, %v9; mul.wide.u32 %x2, %t5, 4; add.u64 %x3, %x0, %x2; st.global.u32 [%x3], %v10; ret; }}"""
    out = np.zeros(flat.size, np.uint32)
    run(HEADER + HEAD + body, "k", 1, block, [out, out, 0])
    assert np.array_equal(out, ((threads["%t0"] + width) * 3 + 1) * 1000 + (threads["%t1"] * width + 1) * 3 + 1)


def test_lanes_that_do_not_act_touch_nothing() -> None:
    """The table ends where an inaccessible page begins; the guard disables the lanes whose rows lie past the end."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    rows = 5  # rows of 16 words; the block has 16 rows
    table = np.frombuffer(memory, np.uint32, rows * 16, page - rows * 64)
    table[:] = np.arange(rows * 16)
    body = f"""setp.lt.u32 %p0, %t1, {rows}; mad.lo.u32 %v0, %t1, 16, %t0; mul.wide.s32 %x2, %v0, 4;
add.u64 %x3, %x1, %x2; mul.wide.s32 %x4, %t1, 64; add.u64 %x4, %x1, %x4;
mov.u32 %v1, 77; mov.u32 %v2, 0; mov.u32 %v3, 0; @%p0 ld.global.u32 %v1, [%x3]; @%p0 ld.u32 %v2, [%x3];
@%p0 ld.global.u32 %v3, [%x4+60]; @%p0 st.global.u32 [%x3], %v1;
add.u32 %v1, %v1, %v2; add.u32 %v1, %v1, %v3;
mul.wide.u32 %x5, %t5, 4; add.u64 %x6, %x0, %x5; st.global.u32 [%x6], %v1; ret; }}"""
    out = np.zeros(256, np.uint32)
    child = os.fork()  # a fault ends the process
    if child == 0:
        libc = ctypes.CDLL(None)
        assert (
            libc.mprotect(ctypes.c_void_p(base + page), page, mmap.PROT_NONE if hasattr(mmap, "PROT_NONE") else 0) == 0
        )
        run(HEADER + HEAD + body, "k", 1, (16, 16, 1), [out, table, 0])
        flat = np.arange(256)
        expected = np.where(flat < rows * 16, 2 * flat + flat // 16 * 16 + 15, 77)
        os._exit(0 if np.array_equal(out, expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_numbers_of_threads_in_a_block_of_rows() -> None:
    """%ntid is known, so that a thread's number in the block, and what is cut out of it, has a pattern."""
    body = "shr.u32 %v0, %t5, 4; and.b32 %v1, %t5, 31; and.b32 %v2, %t5, 4064; or.b32 %v3, %v1, %v2; ret; }"
    module = PtxModule.parse(HEADER + HEAD + body)
    shapes = passes.run(passes.State(module, "k", (16, 16, 1), False, False, False, None, False)).analysis.shapes
    found = {reg.name: shape.pattern for reg, shape in shapes.items()}
    assert [found[f"%{name}"] for name in ("t5", "v0", "v1", "v3")] == [linear(1), digit(4), linear(1), linear(1)]
    assert found["%v2"] == UNIFORM


def test_algebra() -> None:
    assert digit(0, 4).sum(digit(4).scaled(64)) == Pattern((1, 2, 4, 8, 64))
    assert digit(4).scaled(None) == Pattern((0, 0, 0, 0, None))
    assert [p.stride for p in (linear(3).scaled(4), digit(4), UNIFORM, VARYING)] == [12, None, 0, None]
    assert linear(1).difference(linear(1)) == UNIFORM
    assert not VARYING.difference(VARYING).uniform
    assert digit(0, 4).join(Pattern((1, 2, 4, 8, 0))) == digit(0, 4)
    assert [p.separate(n) for p, n in ((linear(1), 32), (linear(1), 16), (linear(3), 1 << 31))] == [True, False, False]
    assert linear(1 << 25).sum(UNIFORM).steps[4] is None
