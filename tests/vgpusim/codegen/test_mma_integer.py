"""mma of integers of 8, 4 and 1 bits against numpy: layouts as the PTX ISA states them, for each register and lane."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.vgpusim.codegen.harness import HEADER, run

Matrix = NDArray[np.int64]
SHAPES = {8: ("m8n8k16", "m16n8k16", "m16n8k32"), 4: ("m8n8k32", "m16n8k32", "m16n8k64"),
          1: ("m8n8k128", "m16n8k128", "m16n8k256")}  # fmt: skip
CASES = [
    *((shape, f"s32.{a}.{b}.s32", 8, True) for shape in SHAPES[8]
      for a, b in (("s8", "s8"), ("u8", "s8"), ("u8", "u8"))),
    *((shape, f"s32.{a}.{b}.s32", 4, finite) for shape in SHAPES[4] for finite in (False, True)
      for a, b in (("s4", "s4"), ("u4", "s4"), ("s4", "u4"), ("u4", "u4"))),
    *((shape, f"s32.b1.b1.s32.{op}.popc", 1, False) for shape in SHAPES[1] for op in ("xor", "and")),
]  # fmt: skip


def sizes(shape: str) -> tuple[int, int, int]:
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def a_place(m: int, per: int, lane: int, register: int, at: int) -> tuple[int, int]:
    """Row and column of element `at` of a register of A: registers alternate between rows 8 apart, then go along k."""
    group, thread = divmod(lane, 4)
    below, along = (register % 2, register // 2) if m == 16 else (0, register)
    return group + 8 * below, thread * per + at + along * 4 * per


def b_place(per: int, lane: int, register: int, at: int) -> tuple[int, int]:
    group, thread = divmod(lane, 4)
    return thread * per + at + register * 4 * per, group


def elements(words: NDArray[np.uint32], kind: str, nbits: int) -> NDArray[np.int64]:
    """The elements of the registers, as (lane, register, element)."""
    shifts = np.arange(0, 32, nbits, dtype=np.uint32)
    parts = ((words[..., None] >> shifts) & np.uint32((1 << nbits) - 1)).astype(np.int64)
    return parts - ((parts >> (nbits - 1)) << nbits) if kind[0] == "s" else parts


@pytest.mark.parametrize(("shape", "types", "nbits", "finite"), CASES, ids=str)
def test_product(shape: str, types: str, nbits: int, finite: bool) -> None:
    m, n, k = sizes(shape)
    rng, per = np.random.default_rng(k), 32 // nbits
    na, nb, nc = m * k // 32 // per, n * k // 32 // per, m * n // 32
    words = rng.integers(0, 1 << 32, (32, na + nb + nc), dtype=np.uint32)
    words[::3, na + nb :] = rng.choice(np.array([0x7FFFFFFF, 0x80000000, 0x7FFFFF00, 0x800000FF], np.uint32), (11, nc))

    def listed(letter: str, first: int, count: int) -> str:
        return "{" + ", ".join(f"%{letter}{first + i}" for i in range(count)) + "}"

    loads = "".join(f"ld.global.b32 %a{i}, [%x0+{4 * i}];" for i in range(na + nb + nc))
    text = f"""{HEADER}.visible .entry k(.param .u64 in, .param .u64 out) {{
.reg .b32 %a<16>, %d<4>, %t; .reg .b64 %x<2>; mov.u32 %t, %tid.x;
ld.param.u64 %x0, [in]; ld.param.u64 %x1, [out];
mad.wide.u32 %x0, %t, {4 * (na + nb + nc)}, %x0; mad.wide.u32 %x1, %t, {4 * nc}, %x1; {loads}
mma.sync.aligned.{shape}.row.col{".satfinite" if finite else ""}.{types}
 {listed("d", 0, nc)}, {listed("a", 0, na)}, {listed("a", na, nb)}, {listed("a", na + nb, nc)};
{"".join(f"st.global.b32 [%x1+{4 * i}], %d{i};" for i in range(nc))} ret; }}"""
    out = np.zeros((32, nc), np.int32)
    run(text, "k", 1, 32, [words, out])
    _, a_kind, b_kind, *_ = types.split(".")
    a, b = np.zeros((m, k), np.int64), np.zeros((k, n), np.int64)
    a_parts, b_parts = elements(words[:, :na], a_kind, nbits), elements(words[:, na : na + nb], b_kind, nbits)
    for lane in range(32):
        for at in range(per):
            for register in range(na):
                a[a_place(m, per, lane, register, at)] = a_parts[lane, register, at]
            for register in range(nb):
                b[b_place(per, lane, register, at)] = b_parts[lane, register, at]
    product = (a[:, :, None] ^ b[None]).sum(1) if "xor" in types else a @ b
    c = words[:, na + nb :].view(np.int32).astype(np.int64)
    for lane in range(32):
        for i in range(nc):
            total = int(product[lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2]) + int(c[lane, i])
            if finite:
                total = max(-(1 << 31), min((1 << 31) - 1, total))
            assert int(out[lane, i]) == (total + (1 << 31)) % (1 << 32) - (1 << 31), (lane, i)


@pytest.mark.parametrize(
    "form", ["m16n8k32.row.col.satfinite.s32.b1.b1.s32.xor.popc", "m16n8k32.row.col.s32.s8.s4.s32",
             "m16n8k256.row.col.s32.b1.b1.s32.or.popc", "m16n8k16.row.col.satfinite.f32.f16.f16.f32",
             "m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32"]
)  # fmt: skip
def test_refused_by_name(form: str) -> None:
    from vgpusim.codegen.compile import UnsupportedInstruction

    operands = "{%r0}, {%r1}, {%r2}, {%r3}"
    text = f"{HEADER}.visible .entry k() {{ .reg .b32 %r<9>; mma.sync.aligned.{form} {operands}; ret; }}"
    with pytest.raises(UnsupportedInstruction, match=r"k: line \d+: unsupported instruction `mma"):
        run(text, "k", 1, 32, [])
