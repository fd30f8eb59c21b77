"""wgmma against numpy: matrices in shared memory have the canonical layouts, for each swizzle mode."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from vgpusim.codegen.compile import PtxError

from tests.vgpusim.codegen.harness import HEADER, run

Bytes = NDArray[np.uint8]
B_AT = 64 << 10  # where B starts in the image of shared memory
IMAGE = 128 << 10
PITCH = {0: 16, 1: 128, 2: 64, 3: 32}  # bytes of a row, by the descriptor's swizzle mode


def swizzled(address: int, mode: int) -> int:
    """XOR the address bits from 4 on with those from 7 on: n bits for a row of 2**n pieces of 16 bytes."""
    if mode == 0:
        return address
    bits = {128: 7, 64: 3, 32: 1}[PITCH[mode]]
    return address ^ ((address >> 7 & bits) << 4)


def place(row: int, byte: int, mode: int, leading: int, stride: int) -> int:
    """Offset of a byte of a row of M or N in a K-major matrix; `byte` counts along k."""
    piece, rest = divmod(byte, 16)
    across = piece * (leading if mode == 0 else 16)
    return swizzled((row // 8) * stride + (row % 8) * PITCH[mode] + across, mode) + rest


def turned_place(row: int, k: int, mode: int, leading: int, stride: int) -> int:
    """Offset in an MN-major matrix of 16-bit elements, in which 8 elements along M or N are adjacent."""
    pieces = PITCH[mode] // 16
    piece, rest = divmod(row, 8)
    outer, inner = divmod(piece, pieces)
    if mode == 0:
        return outer * stride + (k // 8) * leading + (k % 8) * 16 + 2 * rest
    return swizzled(outer * leading + (k // 8) * stride + (k % 8) * PITCH[mode] + inner * 16, mode) + 2 * rest


def descriptor(at: int, mode: int, leading: int, stride: int) -> int:
    return at >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | mode << 62


def strides(turned: bool, mode: int, rows: int) -> tuple[int, int]:
    """Leading and stride dimension byte offsets of a compact matrix of `rows` and 32 bytes (16 elements) of k."""
    if not turned:
        return (16 * rows, 128) if mode == 0 else (16, 8 * PITCH[mode])
    if mode == 0:
        return 16 * rows, 128
    # Pieces of a row along MN come first, then groups of 8 elements of k.
    return 16 * PITCH[mode], 8 * PITCH[mode]


def fill(image: Bytes, at: int, raw: Bytes, turned: bool, mode: int) -> int:
    """Write rows of 32 bytes along k into the image. Returns the descriptor."""
    rows = len(raw)
    leading, stride = strides(turned, mode, rows)
    for row, byte in itertools.product(range(rows), range(32)):
        if turned:
            where = turned_place(row, byte // 2, mode, leading, stride) + byte % 2
        else:
            where = place(row, byte, mode, leading, stride)
        image[at + where] = raw[row, byte]
    return descriptor(at, mode, leading, stride)


def launch(image: Bytes, a: int, b: int, n: int, form: str, tail: str, d: NDArray[np.uint32], fragment: bool,
           words: NDArray[np.uint32]) -> None:  # fmt: skip
    """D = A B + D of one warpgroup; with `fragment` A comes from the registers `words`."""
    count = d.shape[1]
    listed = ", ".join(f"%d{i}" for i in range(count))
    source = "{%a0, %a1, %a2, %a3}" if fragment else "%da"
    text = f"""{HEADER.replace("sm_90", "sm_90a")}
.extern .shared .align 1024 .b8 s[];
.visible .entry k(.param .u64 image, .param .u64 d, .param .u64 f, .param .u64 pa, .param .u64 pb) {{
.reg .b32 %d<{count}>, %a<4>, %t<4>, %v<4>; .reg .b64 %x<8>, %da, %db; .reg .pred %p<3>;
ld.param.u64 %x0, [image]; ld.param.u64 %x1, [d]; ld.param.u64 %x2, [f]; ld.param.u64 %da, [pa]; ld.param.u64 %db, [pb];
mov.u32 %t0, %tid.x; mul.lo.u32 %t1, %t0, 16; mov.u32 %t2, s;
L: cvt.u64.u32 %x3, %t1; add.u64 %x3, %x3, %x0; ld.global.v4.u32 {{%v0, %v1, %v2, %v3}}, [%x3];
add.u32 %t3, %t2, %t1; st.shared.v4.u32 [%t3], {{%v0, %v1, %v2, %v3}}; add.u32 %t1, %t1, 2048;
setp.lt.u32 %p0, %t1, {IMAGE}; @%p0 bra L;
bar.sync 0; setp.eq.u32 %p1, 0, 0;
mad.wide.u32 %x1, %t0, {4 * count}, %x1; mad.wide.u32 %x2, %t0, 16, %x2;
{"".join(f"ld.global.u32 %d{i}, [%x1+{4 * i}];" for i in range(count))}
{"".join(f"ld.global.u32 %a{i}, [%x2+{4 * i}];" for i in range(4))}
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.{form} {{{listed}}}, {source}, %db{tail};
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
{"".join(f"st.global.u32 [%x1+{4 * i}], %d{i};" for i in range(count))} ret; }}"""
    assert not run(text, "k", 1, 128, [image, d, words, a, b], shared=IMAGE).failed


def gathered(d: NDArray[np.generic], n: int) -> NDArray[np.generic]:
    """The 64 x n matrix of the lanes' elements."""
    matrix = np.zeros((64, n), d.dtype)
    for lane, i in itertools.product(range(128), range(n // 2)):
        warp, group, thread = lane // 32, lane % 32 // 4, lane % 4
        matrix[16 * warp + group + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * thread + i % 2] = d[lane, i]
    return matrix


def scattered(matrix: NDArray[np.generic], n: int) -> NDArray[np.generic]:
    d = np.zeros((128, n // 2), matrix.dtype)
    for lane, i in itertools.product(range(128), range(n // 2)):
        warp, group, thread = lane // 32, lane % 32 // 4, lane % 4
        d[lane, i] = matrix[16 * warp + group + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * thread + i % 2]
    return d


def fragments(raw: Bytes) -> NDArray[np.uint32]:
    """The registers of A: rows g and g + 8, then the next 16 bytes of k."""
    words = raw.view(np.uint32)
    a = np.zeros((128, 4), np.uint32)
    for lane, i in itertools.product(range(128), range(4)):
        warp, group, thread = lane // 32, lane % 32 // 4, lane % 4
        a[lane, i] = words[16 * warp + group + 8 * (i % 2), thread + 4 * (i // 2)]
    return a


HALVES = [("K", "K", mode, n) for mode, n in ((0, 8), (1, 64), (2, 24), (3, 256))] + [
    ("K", "MN", 0, 16), ("K", "MN", 1, 64), ("K", "MN", 2, 32), ("K", "MN", 3, 48), ("MN", "MN", 1, 128),
    ("MN", "K", 0, 8), ("MN", "K", 3, 16), ("registers", "K", 1, 40), ("registers", "MN", 2, 96),
]  # fmt: skip


@pytest.mark.parametrize(("a_major", "b_major", "mode", "n"), HALVES)
def test_f16_layouts(a_major: str, b_major: str, mode: int, n: int) -> None:
    """Small whole numbers: every sum is exact, so that a misplaced element shows."""
    rng = np.random.default_rng(n)
    a, b = rng.integers(-8, 9, (64, 16)).astype("f2"), rng.integers(-8, 9, (n, 16)).astype("f2")
    d = rng.integers(-99, 99, (64, n)).astype("f4")
    image = np.zeros(IMAGE, np.uint8)
    da = fill(image, 0, a.view(np.uint8), a_major == "MN", mode) if a_major != "registers" else 0
    db = fill(image, B_AT, b.view(np.uint8), b_major == "MN", mode)
    words = scattered(d, n).view(np.uint32).copy()
    turns = (
        f", {int(b_major == 'MN')}" if a_major == "registers" else f", {int(a_major == 'MN')}, {int(b_major == 'MN')}"
    )
    tail = f", %p1, 1, -1{turns}"
    launch(
        image, da, db, n, f"m64n{n}k16.f32.f16.f16", tail, words, a_major == "registers", fragments(a.view(np.uint8))
    )
    expected = d.astype("f8") - a.astype("f8") @ b.T.astype("f8")
    assert np.array_equal(gathered(words.view("f4"), n), expected)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize(
    ("kind", "out"), [("bf16", "f32"), ("tf32", "f32"), ("e4m3", "f32"), ("s8", "s32"), ("u8", "s32")]
)
def test_other_types(kind: str, out: str, mode: int) -> None:
    rng, n = np.random.default_rng(5), 32
    low, high = (0, 256) if kind == "u8" else (-128, 128) if kind == "s8" else (-4, 5)
    k = {"bf16": 16, "tf32": 8}.get(kind, 32)
    a, b = rng.integers(low, high, (64, k)), rng.integers(low, high, (n, k))
    codes = {v: c for c, v in ((0, 0), (0x38, 1), (0x40, 2), (0x44, 3), (0x48, 4))} | {
        -v: c | 0x80 for c, v in ((0x38, 1), (0x40, 2), (0x44, 3), (0x48, 4))
    }

    def encoded(x: NDArray[np.int64]) -> Bytes:
        match kind:
            case "bf16":
                return (x.astype("f4").view("u4") >> 16).astype("u2").view(np.uint8)
            case "tf32":
                return x.astype("f4").view(np.uint8)
            case "e4m3":
                return np.vectorize(codes.__getitem__)(x).astype(np.uint8)
        return x.astype("i1" if kind == "s8" else "u1").view(np.uint8)

    d = np.zeros((64, n), "f4" if out == "f32" else "i4")
    image = np.zeros(IMAGE, np.uint8)
    da, db = fill(image, 0, encoded(a), False, mode), fill(image, B_AT, encoded(b), False, mode)
    words = scattered(d, n).view(np.uint32).copy()
    tail = ", %p1" + ("" if out == "s32" else ", 1, 1" + (", 0, 0" if kind == "bf16" else ""))
    launch(
        image,
        da,
        db,
        n,
        f"m64n{n}k{k}.{out}.{kind}.{kind}",
        tail,
        words,
        False,
        fragments(image[:2048].reshape(64, 32)),
    )
    assert np.array_equal(gathered(words.view(d.dtype), n), a @ b.T)


def test_8_bit_floats_keep_13_bits() -> None:
    """The published model: all of k at once, terms cut after 13 bits of fraction, sums to 14 significant bits."""
    from tests.vgpusim.codegen.tensor_core import decoded

    rng, n = np.random.default_rng(6), 16
    a, b = (rng.integers(0, 256, (rows, 32)).astype(np.uint8) & 0xF7 for rows in (64, n))
    d = (rng.standard_normal((64, n)) * 2.0 ** rng.integers(-8, 9, (64, n))).astype("f4")
    image = np.zeros(IMAGE, np.uint8)
    da, db = fill(image, 0, a, False, 1), fill(image, B_AT, b, False, 1)
    words = scattered(d, n).view(np.uint32).copy()
    launch(image, da, db, n, f"m64n{n}k32.f32.e4m3.e4m3", ", %p1, 1, 1", words, False, fragments(a))
    x, y = decoded("e4m3")[a][:, None, :], decoded("e4m3")[b][None]

    def exponent(v: NDArray[np.float64], least: int) -> NDArray[np.int64]:
        return np.where(v == 0, -500, np.maximum(np.frexp(v)[1] - 1, least))

    greatest = np.maximum((exponent(x, -6) + exponent(y, -6)).max(-1), exponent(d.astype("f8"), -126))
    unit = 2.0 ** (greatest - 13).astype("f8")
    total = (np.trunc(x * y / unit[..., None]).sum(-1) + np.trunc(d / unit)) * unit
    cut = 2.0 ** (exponent(total, -126) - 13).astype("f8")
    assert np.array_equal(gathered(words.view("f4"), n), np.where(total == 0, 0, np.trunc(total / cut) * cut))


@pytest.mark.parametrize(
    ("form", "tail"),
    [("m64n12k16.f32.f16.f16", ", 1, 1, 0, 0"), ("m64n8k32.f32.f16.f16", ", 1, 1, 0, 0"),
     ("m64n8k16.f32.f16.f16", ", 1, 1"),
     ("m64n8k8.f32.tf32.tf32", ", 1, 1, 0, 1"), ("m64n8k16.f32.f16.f16", ", 2, 1, 0, 0")],
)  # fmt: skip
def test_other_forms_are_refused(form: str, tail: str) -> None:
    text = f"""{HEADER}.visible .entry k() {{ .reg .b32 %d<4>; .reg .b64 %x; .reg .pred %p;
wgmma.mma_async.sync.aligned.{form} {{%d0, %d1, %d2, %d3}}, %x, %x, %p{tail}; ret; }}"""
    with pytest.raises(PtxError, match="wgmma"):
        run(text, "k", 1, 128, [])
