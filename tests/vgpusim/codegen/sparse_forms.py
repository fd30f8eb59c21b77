"""mma.sp with metadata that differs from lane to lane: every type, shape and selector, to compare with a card's
answers."""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Iterator

import numpy as np

from tests.vgpusim.codegen import edge_inputs, warp_forms
from tests.vgpusim.codegen.warp_forms import WarpForm, Words

_HALVES = (("m16n8k16", 2, 4), ("m16n8k32", 4, 2))  # shape, registers of A and of B, selectors
_SHAPES = {
    "f16": _HALVES, "bf16": _HALVES, "tf32": (("m16n8k8", 2, 4), ("m16n8k16", 4, 2)),
    "s8": (("m16n8k32", 2, 2), ("m16n8k64", 4, 1)), "s4": (("m16n8k64", 2, 2), ("m16n8k128", 4, 1)),
    "e4m3": (("m16n8k64", 4, 1),),
}  # fmt: skip
_TYPES = (("f16", "f16", "f32"), ("f16", "f16", "f16"), ("bf16", "bf16", "f32"), ("tf32", "tf32", "f32"),
          *((a, b, d) for a, b in itertools.product(("e4m3", "e5m2"), repeat=2) for d in ("f32", "f16")),
          *((a, b, "s32") for a, b in itertools.product(("s8", "u8"), repeat=2)),
          *((a, b, "s32") for a, b in itertools.product(("s4", "u4"), repeat=2)))  # fmt: skip
_LIKE = {"e5m2": "e4m3", "u8": "s8", "u4": "s4"}
# Four bits of metadata say which two of four elements, or pairs, there are; of tf32 which one of two.
_LEGAL = {"tf32": (0x4, 0xE)}
_TWO_OF_FOUR = (0x4, 0x8, 0xC, 0x9, 0xD, 0xE)


def _made() -> Iterator[WarpForm]:
    for order, (a, b, d) in itertools.product(("mma.sp::ordered_metadata", "mma.sp"), _TYPES):
        for shape, count, selectors in _SHAPES[_LIKE.get(a, a)]:
            for selector, finite in itertools.product(range(selectors), ("", ".satfinite") if d == "s32" else ("",)):
                if order == "mma.sp" and (selector or finite):
                    continue
                counts = (count, count, 2 if d == "f16" else 4)
                name = f"{order}.sync.aligned.{shape}.row.col{finite}"
                made = warp_forms.mma(name, (d, a, b, d), counts, f", %t0, {selector:#x}")
                yield WarpForm(f"mov.b32 %t0, %a{made.count}; {made.text}", (*made.parts, ("meta", 1)), made.results)


@functools.cache
def forms() -> tuple[WarpForm, ...]:
    return tuple(_made())


def inputs(form: WarpForm, name: str) -> Words:
    """`name`: usual, special, or one of edge_inputs.CLASSES."""
    if name in edge_inputs.CLASSES:
        words = edge_inputs.inputs(WarpForm(form.text, form.parts[:-1], form.results), name)
        words = np.concatenate([words, words[:, :1]], axis=1)
    else:
        words = warp_forms.inputs(form, name == "special")
    rng = np.random.default_rng([13, zlib.crc32(form.text.encode())])
    legal = np.array(_LEGAL.get(form.parts[0][0], _TWO_OF_FOUR), np.uint32)
    parts = rng.choice(legal, (len(words), 8)) << (4 * np.arange(8, dtype=np.uint32))
    words[:, -1] = np.bitwise_or.reduce(parts.astype(np.uint32), axis=1)
    return np.ascontiguousarray(words)
