"""One kernel for each arithmetic form of PTX, over edge values and random ones, to compare with a card's answers.

data/arithmetic-h200.tsv has a line for each form: its text, a digest of the bits that an H200 (driver 580.159.04)
computed for inputs(), and a digest with every NaN made equal. In a form D is the result and A, B, C are the operands;
the kinds of the result and the operands follow from its types."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"
COUNT = 8192
_DATA = Path(__file__).parent / "data" / "arithmetic-h200.tsv"
_BLOCK = 128
_ELEMENT = "mov.u32 %t0, %ctaid.x; mov.u32 %t1, %ntid.x; mov.u32 %t2, %tid.x; mad.lo.u32 %t0, %t0, %t1, %t2;"
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Form:
    """`out` and `operands`: h, r, l for 16, 32 and 64 bits, f and d for f32 and f64."""

    text: str
    digest: str
    nan_digest: str
    out: str
    operands: tuple[str, ...]

    @property
    def odd_divisor(self) -> bool:
        """Whether divisors are made odd: integer division by zero is undefined."""
        return re.match(r"(div|rem)\.[us]", self.text) is not None


_KIND = {"f32": "f", "f64": "d", "tf32": "r", "f16x2": "r", "bf16x2": "r", "e4m3x2": "h", "e5m2x2": "h"}


def _kind(name: str) -> str:
    """The register class of a type."""
    return _KIND.get(name) or {"16": "h", "32": "r", "64": "l"}[name[-2:]]


def classes(text: str) -> tuple[str, tuple[str, ...]]:
    """The kinds of the result and of the operands."""
    first = text.split(";")[0]
    words = re.search(r"([a-z]\w*(?:\.[\w]+)+)", first.split("}")[0] if "{" not in text else _inner(text))
    assert words is not None, text
    opcode, *modifiers = words[1].split(".")
    types = [m for m in modifiers if re.fullmatch(r"(b?f|tf|[usb])\d+(x2)?|e\dm\dx2", m)]
    last = _kind(types[-1])
    count = sum(name in re.findall(r"\b[ABC]\b", text) for name in "ABC")
    if text.startswith("{") and opcode == "cvt":  # a saturating conversion; its result is widened to 64 bits
        return "l", (_kind(types[-1]),)
    match opcode:
        case "testp":
            return "r", (last,)
        case "cvt":
            return _kind(types[0]), (last,) * count
        case "set":
            return _kind(types[0]), (last,) * count
        case "slct":
            return _kind(types[0]), (_kind(types[0]), _kind(types[0]), last)
        case "shl" | "shr":
            return last, (last, "r")
        case "bfind" | "popc" | "clz":
            return "r", (last,)
        case "bfe":
            return last, (last, "r", "r")
        case "bfi":
            return last, (last, last, "r")
        case "dp4a" | "dp2a" | "prmt" | "lop3" | "shf" | "szext" | "bmsk":
            return "r", ("r",) * count
        case "mul" | "mad" if "wide" in modifiers:
            wide = {"h": "r", "r": "l"}[last]
            return wide, (last, last, wide)[:count]
    return last, (last,) * count


def _inner(text: str) -> str:
    """The first instruction after the .reg declarations of a braced sequence."""
    return next(part for part in text.strip("{} ").split(";") if not part.strip().startswith(".reg")).strip()


@functools.cache
def forms() -> tuple[Form, ...]:
    found = []
    for line in _DATA.read_text().splitlines():
        text, digest, nan_digest = line.split("\t")
        found.append(Form(text, digest, nan_digest, *classes(text)))
    return tuple(found)


_EDGES_32 = (
    0, 1, 2, 3, 31, 32, 33, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0x80000001,
    0xFFFFFFFF, 0x3F800000, 0xBF800000, 0x3F000000, 0x40490FDB, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001,
    0x7F800001, 0x00000001, 0x007FFFFF, 0x00800000, 0x80800000, 0x7F7FFFFF, 0x4F000000, 0xCF000000, 0x4F800000,
    0x5F000000, 0x33800000, 0x3C00, 0x7C00, 0xFC00, 0x7E00, 0x7BFF, 0x0001, 0x03FF, 0x0400, 0x4B000001, 0x3EFFFFFF,
    0xBF000000, 0x477FF000, 0x43E00000, 0x43F00000, 0x47600000,
)  # fmt: skip
_EDGES_64 = (
    0, 1, 1 << 63, (1 << 64) - 1, 1 << 31, 1 << 32, 0x3FF0000000000000, 0xBFF0000000000000, 0x7FF0000000000000,
    0xFFF0000000000000, 0x7FF8000000000000, 0x7FF0000000000001, 1, 0x000FFFFFFFFFFFFF, 0x0010000000000000,
    0x7FEFFFFFFFFFFFFF, 0x41DFFFFFFFC00000, 0xC1E0000000000000, 0x43E0000000000000, 0x43F0000000000000,
    0x36A0000000000000, 0x47EFFFFFE0000000, 0x3FE0000000000000, 0x4330000000000001,
)  # fmt: skip


@functools.cache
def inputs() -> Words:
    """Three 64-bit words for each of COUNT threads; an operand takes the low bits of its word. The card's digests are
    of results for these words, so the order of the draws must not change."""
    rng = np.random.default_rng(7)
    small, large = np.array(_EDGES_32, np.uint64), np.array(_EDGES_64, np.uint64)
    shape = (COUNT, 3)
    words = rng.integers(0, 1 << 64, shape, dtype=np.uint64, endpoint=False)
    source = rng.integers(0, 5, shape)
    words = np.where(source == 0, rng.choice(small, shape), words)
    words = np.where(source == 1, rng.choice(large, shape), words)
    near = rng.choice(small, shape) + rng.integers(0, 5, shape, dtype=np.uint64) - np.uint64(2)
    words = np.where(source == 2, near & np.uint64(0xFFFFFFFF), words)
    usual = (rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 7, shape)).astype(np.float32)
    words = np.where(source == 3, usual.view(np.uint32).astype(np.uint64), words)
    counts = rng.integers(0, 3, COUNT) == 0
    words[:, 2] = np.where(counts, rng.integers(0, 70, COUNT).astype(np.uint64), words[:, 2])
    return np.ascontiguousarray(words)


_REGISTER = {"h": ("b16", "u16"), "r": ("b32", "u32"), "l": ("b64", "u64"), "f": ("f32", "b32"), "d": ("f64", "b64")}


def body(form: Form, reads: Sequence[str]) -> str:
    """PTX that leaves the result in %x4. `reads` are three instructions, each of which puts a word into %x3."""
    lines = [f".reg .b32 %t<5>; .reg .b64 %x3, %x4; .reg .{_REGISTER[form.out][0]} %D;"]
    for index, (letter, kind) in enumerate(zip("ABC", form.operands, strict=False)):
        lines.append(f".reg .{_REGISTER[kind][0]} %{letter}; {reads[index]}")
        if kind in "ld":
            lines.append(f"mov.b64 %{letter}, %x3;")
        else:
            lines.append("cvt.u32.u64 %t3, %x3;")
            lines.append(f"cvt.u16.u32 %{letter}, %t3;" if kind == "h" else f"mov.b32 %{letter}, %t3;")
        if form.odd_divisor and letter == "B":
            lines.append(f"or.{_REGISTER[kind][0]} %B, %B, 1;")
    lines.append(re.sub(r"\b([ABCD])\b", r"%\1", form.text))
    match form.out:
        case "l" | "d":
            lines.append("mov.b64 %x4, %D;")
        case "h":
            lines.append("cvt.u64.u16 %x4, %D;")
        case _:
            lines.append("mov.b32 %t4, %D; cvt.u64.u32 %x4, %t4;")
    return "\n".join(lines)


def kernel(form: Form, name: str) -> str:
    """PTX that reads three words for each thread and writes one."""
    lines = [
        f".visible .entry {name}(.param .u64 in, .param .u64 out) {{",
        ".reg .b32 %t<3>; .reg .b64 %x<3>;",
        _ELEMENT,
        "ld.param.u64 %x0, [in]; mul.wide.u32 %x1, %t0, 24; add.u64 %x0, %x0, %x1;",
        "ld.param.u64 %x2, [out]; mul.wide.u32 %x1, %t0, 8; add.u64 %x2, %x2, %x1;",
        "{",
        body(form, [f"ld.global.u64 %x3, [%x0+{8 * index}];" for index in range(3)]),
        "st.global.u64 [%x2], %x4; }",
        "ret; }",
    ]
    return "\n".join(lines) + "\n"


def simulate(form: Form) -> Words:
    from tests.vgpusim.codegen.harness import run  # a machine with a card may lack the simulator

    result = np.full(COUNT, 0xEEEE, np.uint64)
    run(HEADER + kernel(form, "k"), "k", COUNT // _BLOCK, _BLOCK, [inputs(), result], chunk=64)
    return result


def digest(words: Words) -> str:
    return hashlib.sha1(words.tobytes()).hexdigest()[:10]


def without_payloads(form: Form, words: Words) -> Words:
    """The words, with every NaN replaced by the same one."""
    words = words.copy()
    match form.out:
        case "f":
            nan = np.isnan(words.astype(np.uint32).view(np.float32))
        case "d":
            nan = np.isnan(words.view(np.float64))
        case "h":
            nan = (words & 0x7FFF) > 0x7C00
        case _:
            nan = np.zeros(len(words), bool)
    words[nan] = 0x7FFF
    return words
