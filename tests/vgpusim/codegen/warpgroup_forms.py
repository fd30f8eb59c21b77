"""wgmma's forms, to compare with a card's answers: A and B in shared memory, K-major and without a swizzle."""

from __future__ import annotations

import functools
import itertools
import zlib

import numpy as np

from tests.vgpusim.codegen.warp_forms import WarpForm, Words
from tests.vgpusim.codegen.warp_forms import inputs as warp_inputs

HEADER = ".version 8.8\n.target sm_90a\n.address_size 64\n"
GROUPS = 4
_N = 16
_MATRIX_WORDS = 5  # each of 128 threads stores 5 words: 64 rows of A and 16 of B have 32 bytes each


def _form(k: int, d: str, a: str, b: str, tail: str) -> WarpForm:
    count = _N // 4 if d == "f16" else _N // 2
    registers = ", ".join(f"%d{i}" for i in range(count))
    text = f"wgmma.mma_async.sync.aligned.m64n{_N}k{k}.{d}.{a}.{b}{'' if 'b1' not in a else tail.split(';')[0]} "
    text += f"{{{registers}}}, %da, %db, %p1{tail.split(';')[-1]};"
    kind = a if a == b else "e4m3" if a[0] == "e" else "bits"
    return WarpForm(text, ((kind, _MATRIX_WORDS), (d, count)), count)


@functools.cache
def forms() -> tuple[WarpForm, ...]:
    made = []
    for (kind, k, turns), d in itertools.product((("f16", 16, ", 0, 0"), ("bf16", 16, ", 0, 0"), ("tf32", 8, "")),
                                                 ("f16", "f32")):  # fmt: skip
        for signs in (", 1, 1", ", -1, 1", ", 1, -1"):
            if d == "f32" or kind == "f16":
                made.append(_form(k, d, kind, kind, signs + turns))
    for a, b, d in itertools.product(("e4m3", "e5m2"), ("e4m3", "e5m2"), ("f16", "f32")):
        made.append(_form(32, d, a, b, ", 1, 1"))
    for a, b, finite in itertools.product(("s8", "u8"), ("s8", "u8"), ("", ".satfinite")):
        form = _form(32, "s32", a, b, "")
        made.append(WarpForm(form.text.replace(f".{b} {{", f".{b}{finite} {{"), form.parts, form.results))
    made.append(_form(256, "s32", "b1", "b1", ".and.popc;"))
    return tuple(made)


def inputs(form: WarpForm, special: bool = False) -> Words:
    """Words of GROUPS x 128 threads: those of the matrices, then D."""
    words = warp_inputs(form, special)
    assert len(words) >= GROUPS * 128, zlib.crc32(form.text.encode())
    return np.ascontiguousarray(words[: GROUPS * 128])


def kernel(form: WarpForm) -> str:
    first = _MATRIX_WORDS
    lines = [
        ".visible .entry k(.param .u64 in, .param .u64 out, .param .u64 scratch) {",
        ".shared .align 1024 .b8 memory[4096];",
        ".reg .b32 %d<8>, %t<8>; .reg .b64 %x<8>, %da, %db; .reg .pred %p<3>;",
        "mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mad.lo.u32 %t1, %t1, 128, %t0; mov.u32 %t2, memory;",
        "ld.param.u64 %x0, [in]; ld.param.u64 %x1, [out];",
        f"mad.wide.u32 %x0, %t1, {4 * form.count}, %x0; mad.wide.u32 %x1, %t1, {4 * form.results}, %x1;",
        f"mad.lo.u32 %t3, %t0, {4 * first}, %t2;",
        *(f"ld.global.b32 %t4, [%x0+{4 * i}]; st.shared.b32 [%t3+{4 * i}], %t4;" for i in range(first)),
        *(f"ld.global.b32 %d{i}, [%x0+{4 * (first + i)}];" for i in range(form.results)),
        "fence.proxy.async.shared::cta; bar.sync 0; setp.eq.u32 %p1, 0, 0;",
        # Descriptors: address, leading and stride offsets in units of 16 bytes.
        f"shr.u32 %t4, %t2, 4; cvt.u64.u32 %x2, %t4; or.b64 %da, %x2, {(64 << 16) | (8 << 32)};",
        f"add.u64 %x2, %x2, 128; or.b64 %db, %x2, {(_N << 16) | (8 << 32)};",
        "wgmma.fence.sync.aligned;",
        form.text,
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        *(f"st.global.b32 [%x1+{4 * i}], %d{i};" for i in range(form.results)),
        "ret; }",
    ]
    return HEADER + "\n".join(lines) + "\n"


def simulate(form: WarpForm, words: Words) -> Words:
    from tests.vgpusim.codegen.harness import run  # a machine with a card may lack the simulator

    result = np.zeros((GROUPS * 128, form.results), np.uint32)
    run(kernel(form), "k", GROUPS, 128, [words, result, result])
    return result
