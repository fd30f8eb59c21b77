"""wmma against numpy: kernels/wmma.cu, and forms that are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vgpusim.codegen.compile import PtxError

from tests.vgpusim.codegen.harness import HEADER, run

TEXT = (Path(__file__).parent / "kernels/wmma_sm80.ptx").read_text()
LD = 32


def encode(values: np.ndarray, kind: str) -> np.ndarray:
    if kind == "bf16":
        return (values.astype("f4").view("u4") >> 16).astype("u2")
    return values.astype(kind)


def matrices(data: np.ndarray, rows: int, columns: int, by_row: bool) -> np.ndarray:
    """The first `rows` x `columns` of each of the tiles, as `tile, row, column`."""
    tiles = data.reshape(-1, LD, LD)
    return (tiles if by_row else tiles.transpose(0, 2, 1))[:, :rows, :columns]


@pytest.mark.parametrize(
    ("name", "m", "n", "kind", "out", "a_by_row", "b_by_row"),
    [
        ("half_rc", 16, 16, "f2", "f4", True, False),
        ("half_cr", 16, 16, "f2", "f2", False, True),
        ("half_tall", 32, 8, "f2", "f2", False, True),
        ("half_wide", 8, 32, "f2", "f4", True, False),
        ("bf16_rr", 16, 16, "bf16", "f4", True, True),
        ("bf16_tall", 32, 8, "bf16", "f4", True, False),
        ("s8_wide", 8, 32, "i1", "i4", True, True),
        ("u8_cc", 16, 16, "u1", "i4", False, False),
    ],
)
def test_products(name: str, m: int, n: int, kind: str, out: str, a_by_row: bool, b_by_row: bool) -> None:
    rng = np.random.default_rng(5)
    low, high = (0, 256) if kind == "u1" else (-128, 128) if kind == "i1" else (-3, 4)
    a, b = rng.integers(low, high, (2, 3 * LD * LD))
    c = np.full((LD, LD), 77, out)
    assert not run(TEXT, name, 1, 32, [encode(a, kind), encode(b, kind), c]).failed
    expected = np.full((LD, LD), 77, out)
    product = 2 * (matrices(a, m, 16, a_by_row) @ matrices(b, 16, n, b_by_row)).sum(0)
    expected[:m, :n] = product.astype(out)
    assert np.array_equal(c, expected)


@pytest.mark.parametrize(
    ("name", "size", "k", "kind", "b_by_row"), [("tf32_rr", 16, 8, "f4", True), ("f64_rc", 8, 4, "f8", False)]
)
def test_products_of_wide_elements(name: str, size: int, k: int, kind: str, b_by_row: bool) -> None:
    rng = np.random.default_rng(6)
    a, b = rng.integers(-9, 10, (2, LD * LD))
    before = rng.integers(-9, 10, (LD, LD)).astype(kind)
    c = before.copy()
    assert not run(TEXT, name, 1, 32, [encode(a, kind), encode(b, kind), c]).failed
    expected = before.copy()
    expected[:size, :size] = (matrices(a, size, k, True) @ matrices(b, k, size, b_by_row))[0] + before.T[:size, :size]
    assert np.array_equal(c, expected)


@pytest.mark.parametrize(
    ("instruction", "result"),
    [
        ("wmma.load.a.sync.aligned.col.m8n8k32.s4 {%r0}, [%x];", 218),
        ("wmma.load.a.sync.aligned.row.m8n8k32.s8 {%r0}, [%x];", 801),
        ("wmma.load.a.sync.aligned.row.m16n16k8.f16 {%r0}, [%x];", 801),
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r0, %r1}, [%x];", 218),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16.satfinite {%r0}, {%r0}, {%r0}, {%r0};", 801),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%r0}, {%r0}, {%r0}, {%r0};", 218),
        ("wmma.mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r0}, {%r0}, {%r0}, {%r0};", 801),
    ],
)
def test_other_forms_are_refused(instruction: str, result: int) -> None:
    text = f"{HEADER}.visible .entry k(.param .u64 p) {{ .reg .b32 %r<2>; .reg .b64 %x; {instruction} ret; }}"
    with pytest.raises(PtxError, match="wmma") as caught:
        run(text, "k", 1, 32, [0])
    assert caught.value.result == result


@pytest.mark.parametrize(
    ("size", "kind", "operation", "finite"),
    [("m16n16k16", "s8", "", True), ("m8n8k32", "s4", "", True), ("m8n8k32", "s4", "", False),
     ("m8n8k32", "u4", "", False), ("m8n8k128", "b1", ".xor.popc", False), ("m8n8k128", "b1", ".and.popc", False)],
)  # fmt: skip
def test_integers_of_few_bits_and_clamped_sums(size: str, kind: str, operation: str, finite: bool) -> None:
    """Loaded from memory and stored back: A by rows, B by columns, with strides above the minimum."""
    m, n, k = {"m16n16k16": (16, 16, 16), "m8n8k32": (8, 8, 32), "m8n8k128": (8, 8, 128)}[size]
    nbits = {"s8": 8, "s4": 4, "u4": 4, "b1": 1}[kind]
    rng, stride = np.random.default_rng(nbits), 2 * k
    raw = rng.integers(0, 256, (m + n, stride * nbits // 8), dtype=np.uint8)
    parts = np.unpackbits(raw, axis=1, bitorder="little").reshape(m + n, stride, nbits)[:, :k]
    values = (parts.astype(np.int64) << np.arange(nbits)).sum(-1)
    if kind[0] == "s":
        values -= (values >> (nbits - 1)) << nbits
    c = rng.integers(0x7FFFF000, 0x7FFFFFFF, (m, n)).astype("i4")
    out = np.zeros((m, n), "i4")
    registers, held = m * k * nbits // 32 // 32, m * n // 32
    lists = {x: ", ".join(f"%{x}{i}" for i in range(registers if x in "ab" else held)) for x in "abcd"}
    text = f"""{HEADER}.visible .entry k(.param .u64 p, .param .u64 q, .param .u64 r) {{
.reg .b32 %a<8>, %b<8>, %c<8>, %d<8>; .reg .b64 %x<4>; .reg .b32 %s;
ld.param.u64 %x0, [p]; ld.param.u64 %x1, [q]; ld.param.u64 %x2, [r]; mov.u32 %s, {stride};
add.u64 %x3, %x0, {m * stride * nbits // 8};
wmma.load.a.sync.aligned.row.{size}.global.{kind} {{{lists["a"]}}}, [%x0], %s;
wmma.load.b.sync.aligned.col.{size}.global.{kind} {{{lists["b"]}}}, [%x3], %s;
wmma.load.c.sync.aligned.row.{size}.global.s32 {{{lists["c"]}}}, [%x1];
wmma.mma{operation}.sync.aligned.row.col.{size}.s32.{kind}.{kind}.s32{".satfinite" if finite else ""}
 {{{lists["d"]}}}, {{{lists["a"]}}}, {{{lists["b"]}}}, {{{lists["c"]}}};
wmma.store.d.sync.aligned.row.{size}.global.s32 [%x2], {{{lists["d"]}}}; ret; }}"""
    run(text, "k", 1, 32, [raw, c, out])
    a, b = values[:m], values[m:]
    product = (a[:, None] ^ b[None]).sum(-1) if "xor" in operation else a @ b.T
    total = product + c
    expected = total.clip(-(1 << 31), (1 << 31) - 1) if finite else total
    assert np.array_equal(out, expected.astype("i4"))
