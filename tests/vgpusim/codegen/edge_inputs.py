"""Inputs of a tensor core's forms at the edges of what their types hold."""

from __future__ import annotations

import zlib

import numpy as np

from tests.vgpusim.codegen.warp_forms import WarpForm, Words

LANES = 512
# "named": zeros, subnormals, greatest and least numbers, infinities, NaNs; "high", "low": sums near the greatest and
# the least of D; "zeros": mostly zeros of both signs; "close": factors between 1/2 and 2, whose sums cancel
CLASSES = ("named", "high", "low", "zeros", "close")
_FIELDS = {"f16": (5, 10), "bf16": (8, 7), "tf32": (8, 23), "f32": (8, 23), "e4m3": (4, 3), "e5m2": (5, 2)}


def _codes(rng: np.random.Generator, name: str, kind: str, size: tuple[int, ...], centre: int) -> Words:
    """Floats of `kind`, one a word. `centre`: their usual exponent."""
    exponents, fractions = _FIELDS[kind]
    bias, top = (1 << (exponents - 1)) - 1, (1 << exponents) - 1
    sign = rng.integers(0, 2, size, dtype=np.uint32) << np.uint32(exponents + fractions)
    fraction = rng.integers(0, 1 << fractions, size, dtype=np.uint32)
    last = top if kind == "e4m3" else top - 1  # the greatest exponent of a number
    if name == "named":
        ones = (1 << fractions) - 1
        finest = last << fractions | (ones - 1 if kind == "e4m3" else ones)
        found = [0, 1, ones, 1 << fractions, bias << fractions, finest, finest - 1]
        special = [top << fractions | ones] if kind == "e4m3" else [top << fractions, top << fractions | 1,
                                                                    top << fractions | ones]  # fmt: skip
        rare = rng.random(size) < 0.03
        chosen = np.where(rare, rng.choice(special, size), rng.choice(found, size)).astype(np.uint32)
        return np.asarray(chosen | sign, np.uint32)
    spread = {"high": (-3, 4), "low": (-6, 7), "zeros": (-4, 5), "close": (-1, 1)}[name]
    field = np.clip(bias + centre + rng.integers(*spread, size), 0, last).astype(np.uint32)
    codes = field << np.uint32(fractions) | fraction
    if name == "zeros":
        codes[rng.random(size) < 0.75] = 0
    return np.asarray(codes | sign, np.uint32)


def inputs(form: WarpForm, name: str) -> Words:
    """The words of each lane. Types other than floats get random bits."""
    rng = np.random.default_rng([11, zlib.crc32(form.text.encode()), CLASSES.index(name)])
    d = form.parts[-1][0] if len(form.parts) > 1 else "f32"
    edge = {"high": 15 if d == "f16" else 127, "low": -24 if d == "f16" else -136}.get(name, 0)
    columns: list[Words] = []
    for place, (kind, count) in enumerate(form.parts):
        words = rng.integers(0, 1 << 32, (LANES, count), dtype=np.uint32)
        if kind in _FIELDS:
            accumulates = place == len(form.parts) - 1 and place > 0
            centre = edge if accumulates else edge // 2
            nbits = 1 + sum(_FIELDS[kind])
            parts = _codes(rng, name, kind, (LANES, count, 32 // nbits), centre)
            words = np.bitwise_or.reduce(parts << (nbits * np.arange(32 // nbits, dtype=np.uint32)), axis=-1)
        columns.append(np.asarray(words, np.uint32))
    return np.ascontiguousarray(np.concatenate(columns, axis=1))
