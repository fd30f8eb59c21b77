"""Kernels of many forms at once: to compile one kernel for each takes five times as long.

data/forms-h200.tsv.xz has a line for each form of more_forms.py, and of warp_forms.py but for products of matrices
(tensor-h200.tsv has those): its text and digests of what an H200 gave (580.159.04, recorded on 2026-11-29 by
tests/gpu/oracle.py), or `-` where ptxas refuses it. A warp form has one for usual numbers and one for any bits."""

from __future__ import annotations

import functools
import lzma
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.vgpusim.codegen import card_forms, more_forms, warp_forms
from tests.vgpusim.codegen.card_forms import COUNT, Form, digest
from tests.vgpusim.codegen.warp_forms import SCRATCH_NBYTES, WARPS, WarpForm

_DATA = Path(__file__).parent / "data"
_BLOCK = 128

DIFFERENT = {
    r"^(tanh\.approx|rsqrt\.approx\S*\.f64|rcp\.approx\.ftz\.f64)": "approximate functions without a table",
    r"mov\.b32 %d1, 7; .*shfl\.sync\.(down|bfly)\S+ %d0\|%p0, %a0, 1, 0x": "undefined: reads lanes outside the mask",
    r"mov\.b32 %d1, 7; .*shfl\.sync\.idx.* 0x1c03": "undefined, likewise",
}
"""Forms whose bits are not a card's, as patterns, and the reason."""


def is_different(text: str) -> bool:
    return any(re.search(pattern, text) for pattern in DIFFERENT)


@functools.cache
def recorded() -> dict[str, tuple[str, ...]]:
    """Digests by the form's text, none where ptxas refuses it."""
    lines = lzma.decompress((_DATA / "forms-h200.tsv.xz").read_bytes()).decode().splitlines()
    found = (line.split("\t") for line in lines if not line.startswith("#"))
    return {text: () if digests[0] == "-" else tuple(digests) for text, *digests in found}


def element_forms(different: bool = False) -> list[Form]:
    """Forms that a card takes and that have its bits, or those that are different. Those of f32 with .ftz alone come
    first: a kernel of them runs in the CPU's flush mode."""
    taken = [f for f in more_forms.forms() if recorded()[f.text] and is_different(f.text) == different]
    return sorted(taken, key=lambda form: not re.search(r"\.ftz\S*\.f32 |\.ftz\.f32\.f32 ", form.text))


def warps(different: bool = False) -> list[WarpForm]:
    return [f for f in warp_forms.forms() if recorded().get(f.text) and is_different(f.text) == different]


def element_kernel(forms: Sequence[Form]) -> str:
    reads = [f"mov.b64 %x3, %words{index};" for index in range(3)]
    lines = [
        ".visible .entry k(.param .u64 in, .param .u64 out) {",
        ".reg .b32 %t<3>; .reg .b64 %x<2>, %words<3>; ld.param.u64 %x0, [in]; ld.param.u64 %x1, [out];",
        "mov.u32 %t0, %ctaid.x; mov.u32 %t1, %ntid.x; mov.u32 %t2, %tid.x; mad.lo.u32 %t0, %t0, %t1, %t2;",
        "mad.wide.u32 %x0, %t0, 24, %x0; mad.wide.u32 %x1, %t0, 8, %x1;",
        *(f"ld.global.u64 %words{i}, [%x0+{8 * i}];" for i in range(3)),
        *(f"{{ {card_forms.body(f, reads)} st.global.u64 [%x1+{8 * COUNT * i}], %x4; }}" for i, f in enumerate(forms)),
        "ret; }",
    ]
    return warp_forms.HEADER + "\n".join(lines) + "\n"


def wrong_elements(forms: Sequence[Form]) -> list[str]:
    """The forms whose digest is not the recorded one."""
    from tests.vgpusim.codegen.harness import run

    result = np.full((len(forms), COUNT), 0xEEEE, np.uint64)
    run(element_kernel(forms), "k", COUNT // _BLOCK, _BLOCK, [card_forms.inputs(), result], chunk=64)
    expected = [form.digest or recorded()[form.text][0] for form in forms]
    return [f.text for f, words, wanted in zip(forms, result, expected, strict=True) if digest(words) != wanted]


def warp_kernel(forms: Sequence[WarpForm]) -> str:
    """Each form has its own part of the inputs, results and scratch memory, for twice the usual number of warps."""
    lines, first, out = [], 0, 0
    for index, form in enumerate(forms):
        at = (4 * first * 64 * WARPS, 4 * out * 64 * WARPS, index * SCRATCH_NBYTES * 2 * WARPS)
        lines.append("{ " + warp_forms.body(form, at) + " }")
        first, out = first + form.count, out + form.results
    return warp_forms.HEADER + "\n".join([warp_forms.OPENING, *lines, "ret; }"]) + "\n"


def wrong_warps(forms: Sequence[WarpForm]) -> list[str]:
    from tests.vgpusim.codegen.harness import run

    kinds = (False, True)
    words = np.concatenate([warp_forms.inputs(form, special).ravel() for form in forms for special in kinds])
    result = np.zeros(sum(form.results for form in forms) * 64 * WARPS, np.uint32)
    scratch = np.zeros(len(forms) * SCRATCH_NBYTES * 2 * WARPS, np.uint8)
    run(warp_kernel(forms), "k", 2 * WARPS, 32, [words, result, scratch])
    wrong, at = [], 0
    for form in forms:
        for special, wanted in zip(kinds, recorded()[form.text], strict=True):
            size = form.results * 32 * WARPS
            if digest(result[at : at + size]) != wanted:
                wrong.append(f"{'special' if special else 'usual'} {form.text}")
            at += size
    return wrong
