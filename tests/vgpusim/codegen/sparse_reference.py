"""The result of mma.sp, in numpy: which elements of A there are by the metadata, then what a tensor core makes of the
products of these alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.vgpusim.codegen.tensor_core import Floats, Mma, Words, aligned, floats, rounded
from tests.vgpusim.codegen.warp_forms import WarpForm

_NAME = re.compile(
    r"mma\.sp\S*\.m16n8k(?P<k>\d+)\.row\.col\.(?P<finite>satfinite\.)?(?P<d>\w+)\.(?P<a>\w+)\.(?P<b>\w+)\.\w+ "
    r".* 0x(?P<selector>\d);$"
)
_NBITS = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "e4m3": 8, "e5m2": 8}
_EIGHT_BITS = ("e4m3", "e5m2")
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class _Form:
    k: int
    d: str
    a: str
    b: str
    selector: int
    finite: bool
    counts: tuple[int, ...]  # registers of A, B and C

    @property
    def chunk(self) -> int:
        """Elements of k that four bits of metadata are about."""
        return {"tf32": 2, "s4": 8, "u4": 8}.get(self.a, 4)


def _parsed(form: WarpForm) -> _Form:
    found = _NAME.search(form.text)
    assert found
    counts = tuple(count for _, count in form.parts[:3])
    return _Form(
        int(found["k"]), found["d"], found["a"], found["b"], int(found["selector"]), bool(found["finite"]), counts
    )


def _elements(register: Words, kind: str) -> list[Floats]:
    if kind == "s32":
        return [register.astype(np.int32).astype(np.float64)]
    if kind[0] not in "su":
        return floats(register, kind)
    nbits = _NBITS[kind]
    codes = [(register >> np.uint32(at)).astype(np.int64) & ((1 << nbits) - 1) for at in range(0, 32, nbits)]
    limit = 1 << (nbits - 1) if kind[0] == "s" else 1 << nbits
    return [np.where(code >= limit, code - (1 << nbits), code).astype(np.float64) for code in codes]


def _by_rows(lanes: Words, kind: str, width: int) -> Floats:
    """A matrix of 16 or 8 rows of `width` elements along k, whose registers are, in turn, of rows 8 apart."""
    rows = lanes.shape[-1] * _elements(lanes[..., 0], kind).__len__() * 32 // width
    matrix, per = np.zeros((len(lanes), rows, width)), 32 // _NBITS[kind]
    for number in range(lanes.shape[-1]):
        for within, values in enumerate(_elements(lanes[..., number].copy(), kind)):
            for lane in range(32):
                row = lane // 4 + 8 * (number % (rows // 8))
                matrix[:, row, lane % 4 * per + within + 4 * per * (number // (rows // 8))] = values[:, lane]
    return matrix


def _chunks(form: _Form, metadata: Words) -> Numbers:
    """Four bits for each row of A and each chunk of it."""
    count = form.k // form.chunk
    found = np.zeros((len(metadata), 16, count), np.int64)
    for row in range(16):
        first, upper = row % 8 * 4, row // 8
        for chunk in range(count):
            if count == 4:  # of one lane, which has two rows
                lane, bit = form.selector, 16 * upper + 4 * chunk
            elif count == 8 and form.a[0] in "su":  # of two lanes, each with a row
                lane, bit = 2 * form.selector + upper, 4 * chunk
            elif count == 8:  # of two lanes, each with half of two rows
                lane, bit = 2 * form.selector + chunk // 4, 16 * upper + 4 * (chunk % 4)
            else:  # of four lanes, each with half of a row
                lane, bit = upper + 2 * (chunk // 8), 4 * (chunk % 8)
            found[:, row, chunk] = metadata[:, first + lane] >> np.uint32(bit) & np.uint32(15)
    return found


def _places(form: _Form, chunks: Numbers) -> Numbers:
    """The k of each element that a sparse A has."""
    starts = np.arange(chunks.shape[-1]) * form.chunk
    first, second = chunks & 3, chunks >> 2
    if form.a == "tf32":
        return starts + first // 2
    each = [first, second] if form.chunk == 4 else [2 * first, 2 * first + 1, 2 * second, 2 * second + 1]
    return np.stack([starts + one for one in each], axis=-1).reshape(*chunks.shape[:2], -1)


def reference(form: WarpForm, words: Words) -> Words:
    given = _parsed(form)
    lanes = words.reshape(-1, 32, words.shape[-1])
    ends = np.cumsum(given.counts)
    a = _by_rows(lanes[..., : ends[0]], given.a, given.k // 2)
    b = _by_rows(lanes[..., ends[0] : ends[1]], given.b, given.k)
    held = [v for at in range(ends[1], ends[2]) for v in _elements(lanes[..., at].copy(), given.d)]
    c = np.zeros((len(lanes), 16, 8))
    where = [(lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2, lane, i) for lane in range(32) for i in range(4)]
    for row, column, lane, i in where:
        c[:, row, column] = held[i][:, lane]
    places = _places(given, _chunks(given, lanes[..., ends[2]]))
    chosen = np.stack([np.take_along_axis(b[:, n, None, :], places, axis=-1) for n in range(8)], axis=2)
    factors = np.broadcast_to(a[:, :, None, :], chosen.shape), chosen
    total = _total(given, factors, c)
    result = np.zeros((len(lanes), 32, 4))
    for row, column, lane, i in where:
        result[:, lane, i] = total[:, row, column]
    return _words(given, result)


def _total(given: _Form, factors: tuple[Floats, Floats], c: Floats) -> Floats:
    if given.d == "s32":
        total: Floats = (factors[0] * factors[1]).sum(-1) + c
        return np.clip(total, -(2.0**31), 2.0**31 - 1) if given.finite else total
    mma = Mma(f"m16n8k{given.k}", given.d, given.a, *given.counts[:3])
    if given.a not in _EIGHT_BITS:
        return rounded(mma, aligned(mma, *factors, c))
    total, upper = np.zeros_like(c), np.arange(given.k // 2) % 4 >= 2
    for half in (~upper, upper):  # of A's registers
        total = rounded(mma, aligned(mma, factors[0][..., half], factors[1][..., half], total))
    with np.errstate(all="ignore"):
        return (total + c).astype(np.float32).astype(np.float64)


def _words(given: _Form, result: Floats) -> Words:
    if given.d == "s32":
        return (result.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).reshape(-1, 4)
    with np.errstate(all="ignore"):
        if given.d == "f32":
            words = np.where(np.isnan(result), np.uint32(0x7FFFFFFF), result.astype(np.float32).view(np.uint32))
            return np.asarray(words, np.uint32).reshape(-1, 4)
        halves = np.where(np.isnan(result), np.uint16(0x7FFF), result.astype(np.float16).view(np.uint16))
    halves = halves.astype(np.uint32)
    return np.asarray(halves[..., ::2] | halves[..., 1::2] << 16, np.uint32).reshape(-1, 2)
