"""mma, ldmatrix, stmatrix, movmatrix against numpy. Fragment layouts are spelled as in the PTX ISA reference."""

from __future__ import annotations

import numpy as np
import pytest
from vgpusim.codegen.compile import PtxError

from tests.vgpusim.codegen.harness import HEADER, run

BYTES = ("s8", "u8")


def a_position(shape: str, kind: str, lane: int, i: int) -> tuple[int, int]:
    group, thread = lane >> 2, lane % 4
    if kind == "f64":
        return (group + 8 * (i % 2), thread + 4 * (i // 2)) if shape != "m8n8k4" else (group, thread)
    if kind in BYTES:
        if shape == "m8n8k16":
            return group, thread * 4 + i
        if shape == "m16n8k16":
            return (group if i < 4 else group + 8), thread * 4 + (i & 3)
        row = group if i < 4 or 8 <= i < 12 else group + 8
        return row, thread * 4 + (i & 3) + (0 if i < 8 else 16)
    if kind == "tf32":
        if shape == "m16n8k4":
            return (group if i == 0 else group + 8), thread
        return (group if i in (0, 2) else group + 8), (thread if i in (0, 1) else thread + 4)
    if shape == "m16n8k8":
        return (group if i in (0, 1) else group + 8), thread * 2 + (i & 1)
    return (group if i in (0, 1, 4, 5) else group + 8), thread * 2 + (i & 1) + (8 if i >= 4 else 0)


def b_position(shape: str, kind: str, lane: int, i: int) -> tuple[int, int]:
    group, thread = lane >> 2, lane % 4
    if kind == "f64":
        return thread + 4 * i, group
    if kind in BYTES:
        return thread * 4 + (i & 3) + (16 if i >= 4 else 0), group
    if kind == "tf32":
        return thread + 4 * i, group
    return thread * 2 + (i & 1) + (8 if i >= 2 else 0), group


def c_position(lane: int, i: int) -> tuple[int, int]:
    group, thread = lane >> 2, lane % 4
    return (group if i in (0, 1) else group + 8), thread * 2 + (i & 1)


def bits(values: np.ndarray, kind: str) -> np.ndarray:
    """Elements as the unsigned integers that registers hold, one integer for each element."""
    if kind == "bf16":
        return (values.astype("f4").view("u4") >> 16).astype("u2")
    return {"f16": lambda: values.astype("f2").view("u2"), "tf32": lambda: values.astype("f4").view("u4"),
            "f32": lambda: values.astype("f4").view("u4"), "f64": lambda: values.astype("f8").view("u8"),
            "s8": lambda: values.astype("i1").view("u1"), "u8": lambda: values.astype("u1"),
            "s32": lambda: values.astype("i4").view("u4")}[kind]()  # fmt: skip


CASES = [
    ("m16n8k16", "f32", "f16", "f16"), ("m16n8k16", "f16", "f16", "f16"), ("m16n8k16", "f32", "bf16", "bf16"),
    ("m16n8k8", "f32", "f16", "f16"), ("m16n8k8", "f16", "f16", "f16"), ("m16n8k8", "f32", "bf16", "bf16"),
    ("m16n8k8", "f32", "tf32", "tf32"), ("m16n8k4", "f32", "tf32", "tf32"), ("m8n8k16", "s32", "s8", "s8"),
    ("m8n8k16", "s32", "u8", "s8"), ("m16n8k16", "s32", "s8", "u8"), ("m16n8k32", "s32", "s8", "s8"),
    ("m16n8k32", "s32", "u8", "u8"), ("m8n8k4", "f64", "f64", "f64"), ("m16n8k4", "f64", "f64", "f64"),
    ("m16n8k8", "f64", "f64", "f64"), ("m16n8k16", "f64", "f64", "f64"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "d_kind", "a_kind", "b_kind"), CASES, ids=lambda x: x)
def test_mma(shape: str, d_kind: str, a_kind: str, b_kind: str) -> None:
    rng = np.random.default_rng(3)
    m, rest = shape[1:].split("n")
    n, k = (int(x) for x in rest.split("k"))
    sizes = {"m": int(m), "n": n, "k": k}
    low = -3 if a_kind not in BYTES else 0
    a = rng.integers(low, 4, (sizes["m"], k)).astype("f8") if a_kind not in BYTES else rng.integers(
        *((-128, 128) if a_kind == "s8" else (0, 256)), (sizes["m"], k)).astype("f8")  # fmt: skip
    b = rng.integers(-3, 4, (k, n)).astype("f8") if b_kind not in BYTES else rng.integers(
        *((-128, 128) if b_kind == "s8" else (0, 256)), (k, n)).astype("f8")  # fmt: skip
    if a_kind not in BYTES:
        a, b = a / 4, b / 8  # exact in every format, and so are all sums
    c = rng.integers(-50, 50, (sizes["m"], n)).astype("f8")
    a[0], c[0] = 0, 0  # a row of nothing but zeros has no exponent to align to
    per = {"f16": 2, "bf16": 2, "s8": 4, "u8": 4}.get(a_kind, 1)
    a_bits, b_bits, c_bits = bits(a, a_kind), bits(b, b_kind), bits(c, d_kind)
    na, nb, nc = a.size // 32, b.size // 32, c.size // 32
    word = "u8" if a_kind == "f64" else "u4"
    dper = 2 if d_kind == "f16" else 1
    a_in = np.array([[a_bits[a_position(shape, a_kind, lane, i)] for i in range(na)] for lane in range(32)])
    b_in = np.array([[b_bits[b_position(shape, b_kind, lane, i)] for i in range(nb)] for lane in range(32)])
    c_in = np.array([[c_bits[c_position(lane, i)] for i in range(nc)] for lane in range(32)])
    a_in, b_in, c_in = (np.ascontiguousarray(x).view(word) for x in (a_in, b_in, c_in))
    out = np.zeros((32, nc // dper), word)
    nbits = 64 if a_kind == "f64" else 32
    counts = (na // per, nb // per, nc // dper)
    lists = [", ".join(f"%{x}{i}" for i in range(count)) for x, count in zip("abc", counts, strict=True)]
    loads = "".join(
        f"mad.lo.u64 %x1, %x0, {count * nbits // 8}, %{x}p;\n"
        + "".join(f"ld.global.b{nbits} %{x}{i}, [%x1+{i * nbits // 8}];\n" for i in range(count))
        for x, count in zip("abc", counts, strict=True)
    )
    text = (
        HEADER
        + f""".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {{
.reg .b{nbits} %a<9>, %b<9>, %c<9>, %d<9>; .reg .b64 %ap, %bp, %cp, %dp, %x<3>; .reg .b32 %t;
ld.param.u64 %ap, [a]; ld.param.u64 %bp, [b]; ld.param.u64 %cp, [c]; ld.param.u64 %dp, [d];
mov.u32 %t, %tid.x; cvt.u64.u32 %x0, %t;
{loads}
mma.sync.aligned.{shape}.row.col.{d_kind}.{a_kind}.{b_kind}.{d_kind}
 {{{lists[2].replace("%c", "%d")}}}, {{{lists[0]}}}, {{{lists[1]}}}, {{{lists[2]}}};
mad.lo.u64 %x1, %x0, {counts[2] * nbits // 8}, %dp;
{"".join(f"st.global.b{nbits} [%x1+{i * nbits // 8}], %d{i};" for i in range(counts[2]))}
ret; }}"""
    )
    run(text, "k", 1, 32, [a_in, b_in, c_in, out])
    view = {"f16": "f2", "f32": "f4", "s32": "i4", "f64": "f8"}[d_kind]
    got = np.zeros_like(c)
    values = out.view(view)
    for lane in range(32):
        for i in range(nc):
            got[c_position(lane, i)] = values[lane, i]
    assert np.array_equal(got, a @ b + c)


@pytest.mark.parametrize(
    ("form", "result"),
    [
        ("m8n8k16.row.col.f32.f16.f16.f32 {%r0}, {%r1}, {%r2}, {%r3}", 801),
        ("m8n8k4.row.col.f32.bf16.bf16.f32 {%r0}, {%r1}, {%r2}, {%r3}", 801),
        ("m8n8k4.row.col.f32.f16.f16.f32 {%r0, %r1}, {%r1, %r2}, {%r2, %r3}, {%r3, %r4}", 218),
        ("m16n8k16.row.col.rz.f32.f16.f16.f32 {%r0}, {%r1}, {%r2}, {%r3}", 801),
        ("sp m16n8k64.row.col.f16.e4m3.e4m3.f16 {%r0}, {%r1}, {%r2}, {%r3}, %r4, 0", 801),
        ("sp m16n8k16.row.col.f32.f16.f16.f32 {%r0}, {%r1}, {%r2}, {%r3}, %r4, 4", 218),
        ("sp m16n8k16.row.col.f32.f16.f16.f32 {%r0}, {%r1}, {%r2}, {%r3}, %r4, 3", 218),
    ],
)
def test_other_forms_are_refused(form: str, result: int) -> None:
    name = f"mma.sp.sync.aligned.{form[3:]}" if form.startswith("sp ") else f"mma.sync.aligned.{form}"
    with pytest.raises(PtxError, match=r"k.*line \d+.*mma") as caught:
        run(f"{HEADER}.visible .entry k() {{ .reg .b32 %r<9>; {name}; ret; }}", "k", 1, 32, [])
    assert caught.value.result == result


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_ldmatrix_stmatrix_movmatrix(count: int, trans: str) -> None:
    """Load matrices from shared memory, transpose each in registers, store them back."""
    rng = np.random.default_rng(5)
    source = rng.integers(0, 1 << 16, (count, 8, 8), dtype=np.uint16)
    registers, back = np.zeros((count, 32), np.uint32), np.zeros((count, 8, 8), np.uint16)
    regs = ", ".join(f"%r{i}" for i in range(count))
    text = (
        HEADER
        + f""".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) {{
.reg .b32 %r<4>, %t<4>, %v<4>; .reg .b64 %x<6>; .reg .pred %p; .shared .align 16 .b8 s[512];
.shared .align 16 .b8 q[512];
ld.param.u64 %x0, [a]; ld.param.u64 %x1, [b]; ld.param.u64 %x2, [c]; mov.u32 %t0, %tid.x;
setp.lt.u32 %p, %t0, {8 * count}; shl.b32 %t1, %t0, 4; mov.u32 %t2, s; add.u32 %t2, %t2, %t1; cvt.u64.u32 %x3, %t1;
add.u64 %x4, %x0, %x3;
@%p ld.global.v4.u32 {{%v0, %v1, %v2, %v3}}, [%x4];
@%p st.shared.v4.u32 [%t2], {{%v0, %v1, %v2, %v3}};
bar.warp.sync 0xffffffff;
ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{regs}}}, [%t2];
mul.wide.u32 %x3, %t0, 4; add.u64 %x4, %x1, %x3;
{"".join(f"st.global.u32 [%x4+{128 * i}], %r{i};" for i in range(count))}
{"".join(f"movmatrix.sync.aligned.m8n8.trans.b16 %r{i}, %r{i};" for i in range(count))}
mov.u32 %t3, q; add.u32 %t3, %t3, %t1;
stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%t3], {{{regs}}};
bar.warp.sync 0xffffffff;
cvt.u64.u32 %x3, %t1; add.u64 %x4, %x2, %x3;
@%p ld.shared.v4.u32 {{%v0, %v1, %v2, %v3}}, [%t3];
@%p st.global.v4.u32 [%x4], {{%v0, %v1, %v2, %v3}};
ret; }}"""
    )
    run(text, "k", 1, 32, [source, registers, back])
    loaded = source.transpose(0, 2, 1) if trans else source
    assert np.array_equal(registers, np.ascontiguousarray(loaded).view(np.uint32).reshape(count, 32))
    assert np.array_equal(back, source.transpose(0, 2, 1))
