"""Forms of PTX that act on a warp or on memory, made by rule, to compare with a card's answers.

A form reads %a0.. (words of 32 bits) and writes %d0..; %lane is the lane, %shared the address of the warp's shared
memory, %global that of its own global memory (both SCRATCH_NBYTES), and %x are 64-bit registers of its own."""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.vgpusim.codegen.tensor_core import INTEGER_FORMS

HEADER = ".version 8.8\n.target sm_90\n.address_size 64\n"
WARPS = 16
SCRATCH_NBYTES = 4096
Words = NDArray[np.uint32]


@dataclass(frozen=True)
class WarpForm:
    """`parts`: the kinds of the input words and how many of each; `results`: words that it writes."""

    text: str
    parts: tuple[tuple[str, int], ...]
    results: int

    @property
    def count(self) -> int:
        return sum(count for _, count in self.parts)


def _registers(letter: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"%{letter}{first + i}" for i in range(count)) + "}"


def mma(name: str, types: tuple[str, str, str, str], counts: tuple[int, int, int], extra: str = "") -> WarpForm:
    """Types and registers of A, B and C (D is like C)."""
    d, a, b, c = types
    sources = ", ".join((_registers("a", 0, counts[0]), _registers("a", counts[0], counts[1]),
                         _registers("a", counts[0] + counts[1], counts[2])))  # fmt: skip
    text = f"{name}.{d}.{a}.{b}.{c} {_registers('d', 0, counts[2])}, {sources}{extra};"
    return WarpForm(text, ((a, counts[0]), (b, counts[1]), (c, counts[2])), counts[2])


def _double(name: str, counts: tuple[int, int, int]) -> WarpForm:
    """Numbers of f64 registers of A, B and C."""
    total = sum(counts)
    loads = " ".join(f"mov.b64 %x{i}, {{%a{2 * i}, %a{2 * i + 1}}};" for i in range(total))
    first = counts[0] + counts[1]
    names = [_registers("x", at, n) for at, n in ((first, counts[2]), (0, counts[0]), (counts[0], counts[1]))]
    stores = " ".join(f"mov.b64 {{%d{2 * i}, %d{2 * i + 1}}}, %x{first + i};" for i in range(counts[2]))
    text = f"{loads} {name}.f64.f64.f64.f64 {names[0]}, {names[1]}, {names[2]}, {names[0]}; {stores}"
    return WarpForm(text, (("f64", 2 * total),), 2 * counts[2])


def _products() -> Iterator[WarpForm]:
    for (shape, a, b), c in itertools.product((("m16n8k8", 2, 1), ("m16n8k16", 4, 2)), (("f16", 2), ("f32", 4))):
        yield mma(f"mma.sync.aligned.{shape}.row.col", (c[0], "f16", "f16", c[0]), (a, b, c[1]))
        if c[0] == "f32":
            yield mma(f"mma.sync.aligned.{shape}.row.col", ("f32", "bf16", "bf16", "f32"), (a, b, 4))
    for shape, a, b in (("m16n8k4", 2, 1), ("m16n8k8", 4, 2)):
        yield mma(f"mma.sync.aligned.{shape}.row.col", ("f32", "tf32", "tf32", "f32"), (a, b, 4))
    for rows, columns, c in itertools.product(("row", "col"), ("row", "col"), (("f16", 4), ("f32", 8))):
        yield mma(f"mma.sync.aligned.m8n8k4.{rows}.{columns}", (c[0], "f16", "f16", c[0]), (2, 2, c[1]))
    for x, y, (shape, a, b) in itertools.product(("e4m3", "e5m2"), ("e4m3", "e5m2"),
                                                 (("m16n8k16", 2, 1), ("m16n8k32", 4, 2))):  # fmt: skip
        for c in (("f16", 2), ("f32", 4)):
            yield mma(f"mma.sync.aligned.{shape}.row.col", (c[0], x, y, c[0]), (a, b, c[1]))
    for shape, counts in (
        ("m8n8k4", (1, 1, 2)),
        ("m16n8k4", (2, 1, 4)),
        ("m16n8k8", (4, 2, 4)),
        ("m16n8k16", (8, 4, 4)),
    ):
        yield _double(f"mma.sync.aligned.{shape}.row.col", counts)
        for mode in (".rz", ".rm"):
            yield _double(f"mma.sync.aligned.{shape}.row.col{mode}", counts)
    for x, y, finite in itertools.product(("s8", "u8"), ("s8", "u8"), ("", ".satfinite")):
        for shape, a, b, n in (("m8n8k16", 1, 1, 2), ("m16n8k16", 2, 1, 4), ("m16n8k32", 4, 2, 4)):
            yield mma(f"mma.sync.aligned.{shape}.row.col{finite}", ("s32", x, y, "s32"), (a, b, n))
    for form in INTEGER_FORMS:
        if ".s4." in form.text or ".u4." in form.text or ".b1." in form.text:
            yield WarpForm(form.text, (("bits", 10),), form.c)


def _sparse() -> Iterator[WarpForm]:
    """The metadata selects elements 0 and 1, 0 and 3, or 2 and 3 of each four."""
    for order in ("mma.sp", "mma.sp::ordered_metadata"):
        for kind, shape, a, b in (("f16", "m16n8k16", 2, 2), ("f16", "m16n8k32", 4, 4), ("bf16", "m16n8k16", 2, 2),
                                  ("bf16", "m16n8k32", 4, 4)):  # fmt: skip
            for selector in (0, 1):
                form = mma(f"{order}.sync.aligned.{shape}.row.col", ("f32", kind, kind, "f32"), (a, b, 4), ", %t0, SEL")
                prepare = f"mov.b32 %t0, 0x{'4e4e4e4e' if 'ordered' in order else 'ee44eecc'};"
                yield WarpForm(f"{prepare} {form.text.replace('SEL', hex(selector))}", form.parts, form.results)
        for kind, shape, a, b in (("tf32", "m16n8k8", 2, 2), ("tf32", "m16n8k16", 4, 4)):
            form = mma(f"{order}.sync.aligned.{shape}.row.col", ("f32", kind, kind, "f32"), (a, b, 4), ", %t0, 0x0")
            yield WarpForm(f"mov.b32 %t0, 0x4e4e4e4e; {form.text}", form.parts, form.results)
        for kind, d in (("s8", "s32"), ("u8", "s32"), ("e4m3", "f32"), ("e5m2", "f32")):
            form = mma(f"{order}.sync.aligned.m16n8k64.row.col", (d, kind, kind, d), (4, 4, 4), ", %t0, 0x0")
            yield WarpForm(f"mov.b32 %t0, 0x4e4e4e4e; {form.text}", form.parts, form.results)


_STORE_ALL = "mad.lo.u32 %t1, %lane, 128, %shared; mov.b32 %t7, 0; "
_STORE_ALL += " ".join(f"st.shared.v4.b32 [%t1+{16 * i}], {{%t7, %t7, %t7, %t7}};" for i in range(8))
_STORE_ALL += " bar.warp.sync 0xffffffff; mad.lo.u32 %t1, %lane, 80, %shared; "


def _whole_matrices() -> Iterator[WarpForm]:
    """wmma by way of shared memory, since the layout of its fragments is the hardware's own."""
    fragments = {"f16": 8, "bf16": 4, "tf32": 4, "s8": 2, "u8": 2, "f64": 1}
    for shape, kind, d in (("m16n16k16", "f16", "f16"), ("m16n16k16", "f16", "f32"), ("m32n8k16", "f16", "f32"),
                           ("m8n32k16", "f16", "f32"), ("m16n16k16", "bf16", "f32"), ("m16n16k8", "tf32", "f32"),
                           ("m16n16k16", "s8", "s32"), ("m32n8k16", "u8", "s32"), ("m8n8k4", "f64", "f64")):  # fmt:skip
        a = b = fragments[kind]
        if kind in ("bf16", "s8", "u8") and shape != "m16n16k16":
            a, b = (4, 1) if kind in ("s8", "u8") else (8, 2)
        c = {"f16": 4, "f64": 2}.get(d, 8)
        names = _registers("w", 0, a), _registers("w", a, b), _registers("w", a + b, c)
        if kind == "f64":
            names = _registers("x", 0, a), _registers("x", a, b), _registers("x", a + b, c)
        rounded = ".rn" if kind == "f64" else ""
        sources = f".{d}.{kind}.{kind}.{d}" if kind not in ("f16",) else f".{d}.{d}"
        for rows, columns in (("row", "col"), ("col", "row")):
            text = _STORE_ALL + " ".join(f"st.shared.b32 [%t1+{4 * i}], %a{i};" for i in range(20))
            text += " bar.warp.sync 0xffffffff; add.u32 %t2, %shared, 1024; add.u32 %t3, %shared, 0;"
            text += f" wmma.load.a.sync.aligned.{rows}.{shape}.shared.{kind} {names[0]}, [%t3], 32;"
            text += f" wmma.load.b.sync.aligned.{columns}.{shape}.shared.{kind} {names[1]}, [%t2], 32;"
            text += f" wmma.load.c.sync.aligned.row.{shape}.shared.{d} {names[2]}, [%t3], 32;"
            text += f" wmma.mma.sync.aligned.{rows}.{columns}.{shape}{rounded}{sources} {names[2]}, {names[0]},"
            text += f" {names[1]}, {names[2]}; bar.warp.sync 0xffffffff;"
            text += (
                f" wmma.store.d.sync.aligned.row.{shape}.shared.{d} [%t3], {names[2]}, 32; bar.warp.sync 0xffffffff;"
            )
            text += " mad.lo.u32 %t1, %lane, 32, %shared; " + " ".join(
                f"ld.shared.b32 %d{i}, [%t1+{4 * i}];" for i in range(8)
            )
            yield WarpForm(text, ((kind, 20),), 8)


def _exchanges() -> Iterator[WarpForm]:
    bits2 = (("bits", 2),)
    for mode, control in itertools.product(("up", "down", "bfly", "idx"), ("0x1f", "0", "0x181f", "0x1c03", "0x1007")):
        yield WarpForm(f"and.b32 %a1, %a1, 63; shfl.sync.{mode}.b32 %d0|%p0, %a0, %a1, {control}, 0xffffffff; "
                       "selp.u32 %d1, 1, 0, %p0;", bits2, 2)  # fmt: skip
        yield WarpForm(f"setp.lt.u32 %p1, %lane, 21; mov.b32 %d0, 7; mov.b32 %d1, 7; and.b32 %a1, %a1, 15; "
                       f"@%p1 shfl.sync.{mode}.b32 %d0|%p0, %a0, 1, {control}, 0x1fffff; @%p1 selp.u32 %d1, 1, 0, %p0;",
                       bits2, 2)  # fmt: skip
    for vote, mask in itertools.product(("all", "any", "uni"), (3, 15)):
        yield WarpForm(f"and.b32 %a0, %a0, {mask}; setp.ne.u32 %p0, %a0, 3; "
                       f"vote.sync.{vote}.pred %p1, %p0, 0xffffffff; selp.u32 %d0, 1, 0, %p1;",
                       (("bits", 1),), 1)  # fmt: skip
    yield WarpForm("and.b32 %a0, %a0, 1; setp.eq.u32 %p0, %a0, 1; vote.sync.ballot.b32 %d0, %p0, 0xffffffff;",
                   (("bits", 1),), 1)  # fmt: skip
    yield WarpForm("setp.lt.u32 %p1, %lane, 13; mov.b32 %d0, 9; and.b32 %a0, %a0, 1; setp.eq.u32 %p0, %a0, 1; "
                   "@%p1 vote.sync.ballot.b32 %d0, %p0, 0x1fff;", (("bits", 1),), 1)  # fmt: skip
    for width in ("b32", "b64"):
        value = "%a0" if width == "b32" else "%x0"
        prepare = "and.b32 %a0, %a0, 7; mov.b64 %x0, {%a0, %a0};"
        yield WarpForm(f"{prepare} match.any.sync.{width} %d0, {value}, 0xffffffff;", (("bits", 1),), 1)
        for keep in (0, 1):
            yield WarpForm(f"and.b32 %a0, %a0, {keep}; mov.b64 %x0, {{%a0, %a0}}; match.all.sync.{width} %d0|%p0, "
                           f"{value}, 0xffffffff; selp.u32 %d1, 1, 0, %p0;", (("bits", 1),), 2)  # fmt: skip
    for op in ("add.s32", "add.u32", "min.s32", "min.u32", "max.s32", "max.u32", "and.b32", "or.b32", "xor.b32"):
        yield WarpForm(f"redux.sync.{op} %d0, %a0, 0xffffffff;", (("bits", 1),), 1)
        yield WarpForm(f"setp.lt.u32 %p1, %lane, 11; mov.b32 %d0, 5; @%p1 redux.sync.{op} %d0, %a0, 0x7ff;",
                       (("bits", 1),), 1)  # fmt: skip
    yield WarpForm("elect.sync %d0|%p0, 0xffffffff; selp.u32 %d1, 1, 0, %p0;", (("bits", 1),), 2)
    yield WarpForm("movmatrix.sync.aligned.m8n8.trans.b16 %d0, %a0;", (("bits", 1),), 1)
    yield WarpForm("activemask.b32 %d0;", (("bits", 1),), 1)


def _matrix_copies() -> Iterator[WarpForm]:
    at = "mad.lo.u32 %t1, %lane, 16, %shared;"
    for count, turned in itertools.product((1, 2, 4), ("", ".trans")):
        yield WarpForm(f"{at} st.shared.v4.b32 [%t1], {{%a0, %a1, %a2, %a3}}; bar.warp.sync 0xffffffff; "
                       f"ldmatrix.sync.aligned.m8n8.x{count}{turned}.shared.b16 {_registers('d', 0, count)}, [%t1];",
                       (("bits", 4),), count)  # fmt: skip
        yield WarpForm(f"{at} st.shared.v4.b32 [%t1], {{%lane, %lane, %lane, %lane}}; bar.warp.sync 0xffffffff; "
                       f"stmatrix.sync.aligned.m8n8.x{count}{turned}.shared.b16 [%t1], {_registers('a', 0, count)}; "
                       "bar.warp.sync 0xffffffff; ld.shared.v4.b32 {%d0, %d1, %d2, %d3}, [%t1];",
                       (("bits", 4),), 4)  # fmt: skip


_ATOMICS = {
    "b32": ("and", "or", "xor", "exch"), "u32": ("add", "inc", "dec", "min", "max"), "s32": ("add", "min", "max"),
    "b64": ("and", "or", "xor", "exch"), "u64": ("add", "min", "max"), "s64": ("min", "max"),
    "f32": ("add",), "f64": ("add",), "f16": ("add.noftz",), "bf16": ("add.noftz",), "f16x2": ("add.noftz",),
    "bf16x2": ("add.noftz",),
}  # fmt: skip


def _atomics() -> Iterator[WarpForm]:
    """Each lane has its own place; one place for the whole warp where only the final value is read."""
    for kind, ops in _ATOMICS.items():
        wide, narrow = kind.endswith("64"), kind in ("f16", "bf16")
        parts = ((kind if kind in ("f16", "bf16", "f64") else "bits", 4),)
        for op, (space, base) in itertools.product(ops, (("shared", "%t1"), ("global", "%x7"))):
            address = "mad.lo.u32 %t1, %lane, 16, %shared; mad.wide.u32 %x7, %lane, 16, %global;"
            fill = f"{address} st.{space}.v2.b32 [{base}], {{%a0, %a1}};"
            value, result = ("%x0", "%x1") if wide else ("%h0", "%h1") if narrow else ("%a2", "%d0")
            prepare = "mov.b64 %x0, {%a2, %a3};" if wide else "mov.b32 {%h0, %h2}, %a2;" if narrow else ""
            finish = "mov.b64 {%d0, %d1}, %x1;" if wide else "mov.b32 %d0, {%h1, %h1}; mov.b32 %d1, 0;" if narrow else \
                "mov.b32 %d1, 0;"  # fmt: skip
            read = f"ld.{space}.v2.b32 {{%d2, %d3}}, [{base}];"
            order, *scopes = ("", ".relaxed.cta", ".acq_rel.gpu", ".relaxed.sys")
            for scope in (order, *scopes) if op in ("add", "exch") and kind in ("u32", "b64") else (order,):
                yield WarpForm(f"{fill} {prepare} atom{scope}.{space}.{op}.{kind} {result}, [{base}], {value}; "
                               f"{finish} {read}", parts, 4)  # fmt: skip
            if op != "exch":
                yield WarpForm(f"{fill} {prepare} red.{space}.{op}.{kind} [{base}], {value}; bar.warp.sync 0xffffffff; "
                               f"{read}", parts, 4)  # fmt: skip
            if op in ("add", "min", "max", "and", "or", "xor") and kind[0] in "bus" and kind != "bf16x2":
                whole = base.replace("%t1", "%shared").replace("%x7", "%global")
                yield WarpForm(f"{address} st.{space}.v2.b32 [{whole}], {{5, 6}}; bar.warp.sync 0xffffffff; {prepare} "
                               f"red.{space}.{op}.{kind} [{whole}], {value}; bar.warp.sync 0xffffffff; "
                               f"ld.{space}.v2.b32 {{%d2, %d3}}, [{whole}];", parts, 4)  # fmt: skip
    for width, (space, base) in itertools.product(
        ("b16", "b32", "b64", "b128"), (("shared", "%t1"), ("global", "%x7"))
    ):
        fill = "mad.lo.u32 %t1, %lane, 16, %shared; mad.wide.u32 %x7, %lane, 16, %global; and.b32 %a0, %a0, 1; " \
            f"and.b32 %a4, %a4, 1; st.{space}.v4.b32 [{base}], {{%a0, %a1, %a2, %a3}};"  # fmt: skip
        read = f"ld.{space}.v4.b32 {{%d0, %d1, %d2, %d3}}, [{base}];"
        names = {"b16": ("%h0", "%h1", "%h2"), "b32": ("%t2", "%a4", "%a5"), "b64": ("%x0", "%x1", "%x2"),
                 "b128": ("%q0", "%q1", "%q2")}[width]  # fmt: skip
        prepare = {"b16": "mov.b32 {%h1, %h3}, %a4; mov.b32 {%h2, %h3}, %a5;", "b32": "",
                   "b64": "mov.b64 %x1, {%a4, %a1}; mov.b64 %x2, {%a5, %a6};",
                   "b128": "mov.b64 %x1, {%a4, %a1}; mov.b64 %x2, {%a2, %a3}; mov.b128 %q1, {%x1, %x2}; "
                           "mov.b64 %x3, {%a5, %a6}; mov.b128 %q2, {%x3, %x2};"}[width]  # fmt: skip
        swap = f"atom.{space}.cas.{width} {names[0]}, [{base}], {names[1]}, {names[2]};"
        yield WarpForm(f"{fill} {prepare} {swap} {read}", (("bits", 8),), 4)
    for kind, count in (("f32", 2), ("f32", 4), ("f16x2", 2), ("f16x2", 4), ("bf16x2", 2), ("bf16x2", 4), ("f16", 8)):
        registers = _registers("a", 4, count) if kind != "f16" else "{" + ", ".join(f"%h{i}" for i in range(8)) + "}"
        halves = " ".join(f"mov.b32 {{%h{2 * i}, %h{2 * i + 1}}}, %a{4 + i};" for i in range(4))
        ftz = "" if kind == "f32" else ".noftz"
        yield WarpForm("mad.wide.u32 %x7, %lane, 16, %global; st.global.v4.b32 [%x7], {%a0, %a1, %a2, %a3}; "
                       f"{halves} red.global.add{ftz}.v{count}.{kind} [%x7], {registers}; bar.warp.sync 0xffffffff; "
                       "ld.global.v4.b32 {%d0, %d1, %d2, %d3}, [%x7];",
                       ((kind.removesuffix("x2"), 8),), 4)  # fmt: skip


def _accesses() -> Iterator[WarpForm]:
    """Loads and stores of each width, with the sign, at each alignment that they allow."""
    for space, base in (("shared", "%t1"), ("global", "%x7")):
        fill = "mad.lo.u32 %t1, %lane, 16, %shared; mad.wide.u32 %x7, %lane, 16, %global; " \
            f"st.{space}.v4.b32 [{base}], {{%a0, %a1, %a2, %a3}};"  # fmt: skip
        for kind, nbytes in (("u8", 1), ("s8", 1), ("u16", 2), ("s16", 2)):
            for at in (0, nbytes, 16 - nbytes):
                yield WarpForm(f"{fill} ld.{space}.{kind} %d0, [{base}+{at}]; st.{space}.{kind} [{base}+{at}], %a4; "
                               f"ld.{space}.v4.{kind} {{%d1, %d2, %d3, %d4}}, [{base}+8];",
                               (("bits", 5),), 5)  # fmt: skip
        for kind in ("u32", "s32", "f32"):
            letter = "f" if kind == "f32" else "d"
            yield WarpForm(f"{fill} ld.{space}.{kind} %{letter}0, [{base}+4]; mov.b32 %d0, %{letter}0; "
                           f"ld.{space}.v2.{kind} {{%{letter}1, %{letter}2}}, [{base}+8]; mov.b32 %d1, %{letter}1; "
                           f"mov.b32 %d2, %{letter}2;", (("bits", 4),), 3)  # fmt: skip
        for kind in ("s8", "u8", "s16", "u16", "s32", "u32"):
            yield WarpForm(f"{fill} ld.{space}.{kind} %x0, [{base}+8]; mov.b64 {{%d0, %d1}}, %x0;", (("bits", 4),), 2)


@functools.cache
def forms() -> tuple[WarpForm, ...]:
    made = itertools.chain(_products(), _sparse(), _whole_matrices(), _exchanges(), _matrix_copies(), _atomics(),
                           _accesses())  # fmt: skip
    return tuple({form.text: form for form in made}.values())


def inputs(form: WarpForm, special: bool = False) -> Words:
    """The words of each lane, `form.count` of them. `special`: any bits with many zeros, instead of usual numbers."""
    rng = np.random.default_rng([7, zlib.crc32(form.text.encode()), special])
    lanes = WARPS * 32
    words = rng.integers(0, 1 << 32, (lanes, form.count), dtype=np.uint32)
    if special:
        words[rng.random(words.shape) < 0.3] = 0
        return words
    at = 0
    for kind, count in form.parts:
        normal = rng.standard_normal((lanes, count, 2)) * 2.0 ** rng.integers(-4, 5, (lanes, count, 2))
        usual = normal.astype(np.float32)
        place = words[:, at : at + count]
        match kind:
            case "f32" | "tf32":
                place[:] = usual[:, :, 0].view(np.uint32)
            case "f64":
                place[:] = normal[:, : count // 2, 0].copy().view(np.uint32).reshape(lanes, -1)
            case "f16" | "bf16":
                half = usual.astype(np.float16).view(np.uint16) if kind == "f16" else usual.view(np.uint32) >> 16
                half = half.astype(np.uint32)
                place[:] = half[..., 0] | half[..., 1] << 16
            case "e4m3" | "e5m2":
                place &= np.uint32(0xB7B7B7B7)
        at += count
    return np.ascontiguousarray(words)


OPENING = f""".visible .entry k(.param .u64 in, .param .u64 out, .param .u64 scratch) {{
.shared .align 256 .b8 memory[{SCRATCH_NBYTES}];
.reg .b32 %lane, %shared, %cta, %thread; mov.u32 %lane, %tid.x; mov.u32 %shared, memory; mov.u32 %cta, %ctaid.x;
mad.lo.u32 %thread, %cta, 32, %lane;"""


def body(form: WarpForm, at: tuple[int, int, int] = (0, 0, 0)) -> str:
    """The form with its inputs, results and scratch memory at offsets in bytes."""
    count = form.count
    lines = [
        ".reg .b32 %a<32>, %d<8>, %t<8>, %w<24>; .reg .b64 %x<20>, %global, %in, %out, %at;",
        ".reg .f32 %f<8>; .reg .b16 %h<8>; .reg .pred %p<4>; .reg .b128 %q<4>;",
        "mov.u32 %t0, %cta; mov.u32 %t1, %thread; ld.param.u64 %in, [in]; ld.param.u64 %out, [out];",
        f"ld.param.u64 %global, [scratch]; mad.wide.u32 %global, %t0, {SCRATCH_NBYTES}, %global;",
        f"mad.wide.u32 %in, %t1, {4 * count}, %in; mad.wide.u32 %out, %t1, {4 * form.results}, %out;",
        f"add.u64 %in, %in, {at[0]}; add.u64 %out, %out, {at[1]}; add.u64 %global, %global, {at[2]};",
        *(f"ld.global.b32 %a{i}, [%in+{4 * i}];" for i in range(count)),
        *(f"mov.b32 %d{i}, 0;" for i in range(form.results)),
        form.text,
        *(f"st.global.b32 [%out+{4 * i}], %d{i};" for i in range(form.results)),
    ]
    return "\n".join(lines)


def kernel(form: WarpForm) -> str:
    return HEADER + "\n".join([OPENING, body(form), "ret; }"]) + "\n"


def simulate(form: WarpForm, words: Words) -> Words:
    from tests.vgpusim.codegen.harness import run  # a machine with a card may lack the simulator

    result = np.zeros((WARPS * 32, form.results), np.uint32)
    scratch = np.zeros(WARPS * SCRATCH_NBYTES, np.uint8)
    run(kernel(form), "k", WARPS, 32, [words, result, scratch])
    return result
