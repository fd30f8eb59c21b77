"""One PTX instruction applied to arrays: the smallest kernel around it, run with varying and with uniform operands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.vgpusim.codegen.harness import HEADER, run

Array = NDArray[np.generic]


def apply(body: str, inputs: Sequence[Array], out: str, count: int = 1, declare: str = "") -> list[Array]:
    """Run `body` on each element: inputs are in %a0, %a1, ..., results are taken from %d0, %d1, ...

    The kernel runs twice: with one element a lane, in blocks of 50 threads, and with one element a warp, which takes
    the compiler's uniform path. Both must agree bit for bit."""
    varying = _run(body, inputs, out, count, declare, uniform=False)
    uniform = _run(body, inputs, out, count, declare, uniform=True)
    for a, b in zip(varying, uniform, strict=True):
        assert a.tobytes() == b.tobytes(), f"varying and uniform results of `{body}` differ:\n{a}\n{b}"
    return varying


def _run(body: str, inputs: Sequence[Array], out: str, count: int, declare: str, uniform: bool) -> list[Array]:
    n = inputs[0].size
    out_nbytes = np.dtype(out).itemsize
    names = [f"in{i}" for i in range(len(inputs))] + [f"out{i}" for i in range(count)]
    params = ", ".join([*(f".param .u64 {name}" for name in names), ".param .u32 n"])
    lines = [f".reg .b{max(16, a.itemsize * 8)} %a{i};" for i, a in enumerate(inputs)]
    lines += [f".reg .b{max(16, out_nbytes * 8)} %d{i};" for i in range(count)]
    lines += [".reg .pred %p<8>; .reg .b64 %x<6>; .reg .b32 %t<4>; .reg .b32 %r<9>;", declare]
    if uniform:
        lines.append("mov.u32 %t0, %ctaid.x;")
    else:
        lines.append("mov.u32 %t1, %ctaid.x; mov.u32 %t2, %ntid.x; mov.u32 %t3, %tid.x; mad.lo.u32 %t0, %t1, %t2, %t3;")
    lines.append("ld.param.u32 %t1, [n]; setp.ge.u32 %p0, %t0, %t1; @%p0 bra $done; cvt.u64.u32 %x0, %t0;")
    for i, array in enumerate(inputs):
        size = array.itemsize
        lines.append(
            f"ld.param.u64 %x1, [in{i}]; mad.lo.u64 %x2, %x0, {size}, %x1; ld.global.b{size * 8} %a{i}, [%x2];"
        )
    lines.append(body)
    for i in range(count):
        lines.append(
            f"ld.param.u64 %x1, [out{i}]; mad.lo.u64 %x2, %x0, {out_nbytes}, %x1;"
            f"st.global.b{out_nbytes * 8} [%x2], %d{i};"
        )
    text = HEADER + f".visible .entry k({params})\n{{\n" + "\n".join(lines) + "\n$done: ret;\n}\n"
    results: list[Array] = [np.full(n, 0x5A, np.uint8).repeat(out_nbytes).view(out) for _ in range(count)]
    grid, block = (n, 32) if uniform else ((n + 49) // 50, 50)
    run(text, "k", grid, block, [*inputs, *results, n])
    return results


def integers(kind: str, n: int = 77, seed: int = 0) -> Array:
    """Random values of every magnitude, with the extremes among them."""
    rng = np.random.default_rng([seed, n, *kind.encode()])
    info = np.iinfo(kind)
    nbits = info.bits
    raw = (
        rng.integers(0, 1 << 64, n, dtype=np.uint64, endpoint=False) if nbits == 64 else rng.integers(0, 1 << nbits, n)
    )
    raw = raw.astype(np.uint64) >> rng.integers(0, nbits, n).astype(np.uint64)
    values = raw.astype(f"u{nbits // 8}").view(kind)
    values[:6] = [0, 1, info.min, info.max, info.max - 1, info.min + 1]
    rng.shuffle(values)
    return values


def floats(kind: str, n: int = 77, seed: int = 0, span: float = 10.0) -> Array:
    """Random floats over 2**-span..2**span of both signs, with zeros, infinities and NaN among them."""
    rng = np.random.default_rng([seed, n, *kind.encode()])
    values = (np.exp2(rng.uniform(-span, span, n)) * rng.choice([-1, 1], n)).astype(kind)
    values[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]
    rng.shuffle(values)
    return values
