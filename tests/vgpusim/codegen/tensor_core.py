"""The result of a Hopper tensor core for a warp's fragments, in numpy: the reference for mma of f16, bf16, tf32 and
8-bit floats, of which the driver makes f16."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tests.vgpusim.codegen.card_forms import HEADER

if TYPE_CHECKING:
    from vgpusim.codegen.emit_mma import Shape

WARPS = 64
WORDS = 10  # input words of each lane
_FRACTION_BITS = 25
_NONE = -500  # the exponent of zero, which takes no part in the alignment
_SMALLEST = {"f16": -14, "bf16": -126, "tf32": -126}
Words = NDArray[np.uint32]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Mma:
    """A form, the numbers of registers of A, B and C, and the recorded comparison of an H200 with f32 sums in the order
    of k: how many results differ, and the first result that differs."""

    shape: str
    d: str
    kind: str
    a: int
    b: int
    c: int
    differing: int | None = None  # None: not recorded
    first: int = 0
    b_kind: str = ""  # the type of B, if it differs from A's

    @property
    def b_type(self) -> str:
        return self.b_kind or self.kind

    @property
    def text(self) -> str:
        def registers(letter: str, first: int, count: int) -> str:
            return "{" + ", ".join(f"%{letter}{first + i}" for i in range(count)) + "}"

        return (
            f"mma.sync.aligned.{self.shape}.row.col.{self.d}.{self.kind}.{self.b_type}.{self.d} "
            f"{registers('d', 0, self.c)}, {registers('a', 0, self.a)}, {registers('a', self.a, self.b)}, "
            f"{registers('a', self.a + self.b, self.c)};"
        )


FORMS = (
    Mma("m16n8k8", "f32", "f16", 2, 1, 4, 4573, 0xC2251AA4),
    Mma("m16n8k16", "f32", "f16", 4, 2, 4, 5286, 0x4289B6E0),
    Mma("m16n8k8", "f16", "f16", 2, 1, 2, 1, 0x35C7BB05),
    Mma("m16n8k16", "f16", "f16", 4, 2, 2, 2, 0x0466C628),
    Mma("m16n8k8", "f32", "bf16", 2, 1, 4, 3880, 0x4190E192),
    Mma("m16n8k16", "f32", "bf16", 4, 2, 4, 4547, 0x42BD510E),
    Mma("m16n8k4", "f32", "tf32", 2, 1, 4, 3942, 0x4163F70C),
    Mma("m16n8k8", "f32", "tf32", 4, 2, 4, 4587, 0x41180DC5),
    Mma("m16n8k32", "f32", "e4m3", 4, 2, 4),
    Mma("m16n8k32", "f32", "e5m2", 4, 2, 4),
    Mma("m16n8k32", "f32", "e4m3", 4, 2, 4, b_kind="e5m2"),
    Mma("m16n8k32", "f32", "e5m2", 4, 2, 4, b_kind="e4m3"),
    Mma("m16n8k16", "f32", "e4m3", 2, 1, 4),
    Mma("m16n8k32", "f16", "e4m3", 4, 2, 2),
)


@dataclass(frozen=True)
class IntegerMma:
    """A form of integers: its text and the number of registers of D. Its reference is in test_mma_integer.py."""

    text: str
    c: int


def _integer(shape: str, types: str, a: int, b: int, c: int, finite: str = "") -> IntegerMma:
    def registers(letter: str, first: int, count: int) -> str:
        return "{" + ", ".join(f"%{letter}{first + i}" for i in range(count)) + "}"

    sources = ", ".join((registers("a", 0, a), registers("a", a, b), registers("a", a + b, c)))
    return IntegerMma(f"mma.sync.aligned.{shape}.row.col{finite}.{types} {registers('d', 0, c)}, {sources};", c)


INTEGER_FORMS = (
    *(_integer("m16n8k32", f"s32.{x}.{y}.s32", 4, 2, 4, ".satfinite") for x in ("s8", "u8") for y in ("s8", "u8")),
    *(_integer("m16n8k64", f"s32.{x}.{y}.s32", 4, 2, 4, f) for x in ("s4", "u4") for y in ("s4", "u4")
      for f in ("", ".satfinite")),
    _integer("m8n8k32", "s32.s4.u4.s32", 1, 1, 2), _integer("m16n8k32", "s32.u4.s4.s32", 2, 1, 4),
    *(_integer(shape, f"s32.b1.b1.s32.{op}.popc", *counts) for op in ("xor", "and")
      for shape, counts in (("m8n8k128", (1, 1, 2)), ("m16n8k128", (2, 1, 4)), ("m16n8k256", (4, 2, 4)))),
)  # fmt: skip
RECORDED = tuple(form for form in FORMS if form.differing is not None)
_EIGHT_BITS = ("e4m3", "e5m2")


def inputs(form: Mma) -> Words:
    """The words that the card computed with, so the order of the draws must not change."""
    rng, count = np.random.default_rng(7), WARPS * 32
    words = rng.integers(0, 1 << 32, (count, WORDS), dtype=np.uint32)

    def values(kind: str, n: int) -> Words:
        normal = rng.standard_normal((count, n, 2))
        usual = (normal * 2.0 ** rng.integers(-4, 5, normal.shape)).astype(np.float32)
        if kind in ("f32", "tf32"):
            return usual[:, :, 0].copy().view(np.uint32)
        if kind in _EIGHT_BITS:
            finite = np.uint32(0xF7F7F7F7 if kind == "e4m3" else 0xFBFBFBFB)
            if form.d == "f16":  # sums in f16 must not reach infinity
                finite &= np.uint32(0xBFBFBFBF)
            return rng.integers(0, 1 << 32, (count, n), dtype=np.uint32) & finite
        if kind == "f16":
            bits = usual.astype(np.float16).view(np.uint16).astype(np.uint32)
        else:
            bits = usual.view(np.uint32) >> 16
        return np.asarray(bits[..., 0] | bits[..., 1] << 16, np.uint32)

    factors = form.a + form.b
    words[:, :factors] = values(form.kind, factors)
    if form.b_kind:
        words[:, form.a : factors] = values(form.b_kind, form.b)
    words[:, factors:] = values(form.d, WORDS - factors)
    return np.ascontiguousarray(words)


def special_words() -> Words:
    """Random bits with many zeros: the recorded inputs do not show how a zero factor takes part in the alignment."""
    rng = np.random.default_rng(3)
    words = rng.integers(0, 1 << 32, (WARPS * 32, WORDS), dtype=np.uint32)
    words[rng.random(words.shape) < 0.3] = 0
    return words


def _shape(form: Mma) -> Shape:
    from vgpusim.codegen.emit_mma import shape_of  # a machine with a card may lack the simulator

    return shape_of(form.shape, form.kind)


def kernel(form: Mma | IntegerMma) -> str:
    """PTX that reads WORDS words for each thread and writes the registers of D."""
    lines = [".visible .entry k(.param .u64 in, .param .u64 out) { .reg .b32 %a<10>, %d<4>, %t<4>; .reg .b64 %x<4>;"]
    lines += ["mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mad.lo.u32 %t0, %t1, 32, %t0;"]
    lines += ["ld.param.u64 %x0, [in]; ld.param.u64 %x1, [out];"]
    lines += [f"mad.wide.u32 %x0, %t0, {4 * WORDS}, %x0; mad.wide.u32 %x1, %t0, {4 * form.c}, %x1;"]
    lines += [f"ld.global.b32 %a{i}, [%x0+{4 * i}];" for i in range(WORDS)]
    lines += [form.text, *(f"st.global.b32 [%x1+{4 * i}], %d{i};" for i in range(form.c)), "ret; }"]
    return HEADER + "\n".join(lines) + "\n"


def simulate(form: Mma | IntegerMma, words: Words) -> Words:
    from tests.vgpusim.codegen.harness import run

    result = np.zeros((len(words), form.c), np.uint32)
    run(kernel(form), "k", len(words) // 32, 32, [words, result])
    return result


@functools.cache
def decoded(kind: str) -> Floats:
    """The values of all codes of an 8-bit float."""
    mantissa, bias = (3, 7) if kind == "e4m3" else (2, 15)
    values = []
    for code in range(256):
        exponent, fraction = (code & 0x7F) >> mantissa, code & ((1 << mantissa) - 1)
        value = (fraction + ((1 << mantissa) if exponent else 0)) * 2.0 ** (max(exponent, 1) - bias - mantissa)
        if kind == "e5m2" and exponent == 31:
            value = np.nan if fraction else np.inf
        if kind == "e4m3" and code & 0x7F == 0x7F:
            value = np.nan
        values.append(-value if code & 0x80 else value)
    return np.array(values)


@np.errstate(invalid="ignore")  # signalling NaNs
def floats(register: Words, kind: str) -> list[Floats]:
    if kind in ("f32", "tf32"):
        mask = np.uint32(0xFFFFE000 if kind == "tf32" else 0xFFFFFFFF)
        return [(register & mask).view(np.float32).astype(np.float64)]
    if kind in _EIGHT_BITS:
        return [decoded(kind)[(register >> np.uint32(shift)) & np.uint32(0xFF)] for shift in (0, 8, 16, 24)]
    halves = [(register >> np.uint32(shift)) & np.uint32(0xFFFF) for shift in (0, 16)]
    if kind == "f16":
        return [half.astype(np.uint16).view(np.float16).astype(np.float64) for half in halves]
    return [(half << np.uint32(16)).view(np.float32).astype(np.float64) for half in halves]


def matrices(form: Mma, words: Words) -> tuple[Floats, Floats, Floats]:
    """A, B transposed, and C of each warp."""
    shape = _shape(form)
    lanes = words.reshape(-1, 32, WORDS)
    found = []
    for rows, columns, first, count, kind, place in (
        (shape.m, shape.k, 0, form.a, form.kind, shape.a_place),
        (shape.k, shape.n, form.a, form.b, form.b_type, shape.b_place),
        (shape.m, shape.n, form.a + form.b, form.c, form.d, shape.c_place),
    ):
        matrix = np.zeros((len(lanes), rows, columns))
        elements = [v for r in range(first, first + count) for v in floats(lanes[:, :, r].copy(), kind)]
        for lane in range(32):
            for index, values in enumerate(elements):
                matrix[(slice(None), *place(lane // 4, lane % 4, index))] = values[:, lane]
        found.append(matrix)
    return found[0], found[1].transpose(0, 2, 1), found[2]


def to_words(form: Mma, matrix: Floats) -> Words:
    """The registers that hold the matrix D."""
    shape = _shape(form)
    count = shape.m * shape.n // 32
    lanes = np.zeros((len(matrix), 32, count))
    for lane in range(32):
        for index in range(count):
            lanes[:, lane, index] = matrix[(slice(None), *shape.c_place(lane // 4, lane % 4, index))]
    with np.errstate(all="ignore"):
        if form.d == "f32":
            words = lanes.astype(np.float32).view(np.uint32)
            return np.where(np.isnan(lanes), np.uint32(0x7FFFFFFF), words).reshape(-1, count)
        halves = np.where(np.isnan(lanes), np.uint16(0x7FFF), lanes.astype(np.float16).view(np.uint16))
    halves = halves.astype(np.uint32)
    return np.asarray(halves[..., ::2] | halves[..., 1::2] << 16, np.uint32).reshape(-1, count // 2)


def _exponent(value: Floats, smallest: int) -> NDArray[np.int64]:
    exponents = np.frexp(np.where(np.isfinite(value), value, 1.0))[1].astype(np.int64) - 1
    return np.where(value == 0, _NONE, np.maximum(exponents, smallest))


def reference(form: Mma, words: Words) -> Words:
    """The card's words. Of 8-bit floats the lower two of each register of A and B are added first, then the upper two;
    C is added to the rounded sum, by itself."""
    a, b, c = matrices(form, words)
    if form.kind not in _EIGHT_BITS:
        return to_words(form, rounded(form, aligned(form, *_factors(a, b), c)))
    total, upper = np.zeros_like(c), np.arange(a.shape[-1]) % 4 >= 2
    for half in (~upper, upper):
        total = rounded(form, aligned(form, *_factors(a[..., half], b[..., half]), total))
    with np.errstate(all="ignore"):
        return to_words(form, (total + c).astype(np.float16 if form.d == "f16" else np.float32).astype(np.float64))


def _factors(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Of each row and column, along k."""
    shape = (*a.shape[:2], b.shape[1], a.shape[2])
    return np.broadcast_to(a[:, :, None, :], shape), np.broadcast_to(b[:, None, :, :], shape)


def aligned(form: Mma, a: Floats, b: Floats, c: Floats) -> Floats:
    """The sum of all products and C at once, terms cut to a common unit; or an infinity or NaN."""
    smallest = _SMALLEST.get(form.kind, _SMALLEST["f16"])
    with np.errstate(all="ignore"):
        products = a * b
        special = products.sum(-1) + c
        exponents = _exponent(a, smallest) + _exponent(b, smallest)
        largest = np.maximum(exponents.max(-1), _exponent(c, -14 if form.d == "f16" else -126))
        unit = 2.0 ** (np.maximum(largest, _NONE) - _FRACTION_BITS).astype(np.float64)
        total = (np.trunc(products / unit[..., None]).sum(-1) + np.trunc(c / unit)) * unit
        return np.where(np.isfinite(special), total, special)


def rounded(form: Mma, total: Floats) -> Floats:
    """To nearest f16; or cut to f32, to an infinity beyond the greatest f32. A zero is positive."""
    with np.errstate(all="ignore"):
        size = np.abs(total)
        unit = 2.0 ** (np.maximum(np.frexp(np.where(np.isfinite(size), size, 1.0))[1], -125) - 24)
        cut = np.where(size < 2.0**128, np.floor(size / unit) * unit, np.where(np.isnan(size), np.nan, np.inf))
        result = total.astype(np.float16) if form.d == "f16" else np.copysign(cut, total)
        return np.where(result == 0, 0.0, result.astype(np.float64))


def in_order(form: Mma, words: Words) -> Words:
    """Sums in f32 with a fused multiply-add for each k: how the simulator computed before it followed the hardware."""
    a, b, c = matrices(form, words)
    for k in range(a.shape[-1]):
        c = (a[:, :, None, k] * b[:, None, :, k] + c).astype(np.float32).astype(np.float64)
    return to_words(form, c)
