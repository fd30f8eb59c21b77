"""Element-wise forms of PTX beyond those of data/arithmetic-h200.tsv, made by rule: conversions, comparisons, video
instructions, packed integers, carries and approximations. A card refuses some of them, as the simulator should."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

from tests.vgpusim.codegen.card_forms import Form
from tests.vgpusim.codegen.card_forms import forms as recorded_forms

_INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
_FLOATS = ("f16", "bf16", "f32", "f64")
_KIND = {"f32": "f", "f64": "d", "f16": "h", "bf16": "h", "u16": "h", "s16": "h", "b16": "h", "u64": "l", "s64": "l"}
_KIND |= {"b64": "l", "e4m3x2": "h", "e5m2x2": "h"}
_ROUNDINGS = (".rn", ".rz", ".rm", ".rp")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_FLOAT_COMPARISONS = (*_COMPARISONS, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
_UNSIGNED_COMPARISONS = ("eq", "ne", "lo", "ls", "hi", "hs")


def _kind(name: str) -> str:
    """8-bit and packed operands are in 32-bit registers."""
    return _KIND.get(name, "r")


def _form(text: str, out: str, *operands: str) -> Form:
    return Form(text, "", "", _kind(out), tuple(map(_kind, operands)))


def _integer_conversions() -> Iterator[Form]:
    for to, source in itertools.product(_INTEGERS, _INTEGERS):
        for sat in ("", ".sat"):
            yield _form(f"cvt{sat}.{to}.{source} D, A;", to, source)
    for to, source, mode in itertools.product(_FLOATS, _INTEGERS, _ROUNDINGS):
        yield _form(f"cvt{mode}.{to}.{source} D, A;", to, source)
        if mode == ".rn" and to != "bf16":
            yield _form(f"cvt.rn.sat.{to}.{source} D, A;", to, source)
    for to, source, mode in itertools.product(_INTEGERS, _FLOATS, (".rni", ".rzi", ".rmi", ".rpi")):
        yield _form(f"cvt{mode}.{to}.{source} D, A;", to, source)
        yield _form(f"cvt{mode}.sat.{to}.{source} D, A;", to, source)
        if source == "f32":
            yield _form(f"cvt{mode}.ftz.sat.{to}.f32 D, A;", to, source)
    for to, parts in (("u16", ".u16"), ("s16", ".s16")):
        yield _form(f"cvt.pack.sat{parts}.s32 D, A, B;", f"{to}x2", "s32", "s32")
    for to in ("u8", "s8", "u4", "s4", "u2", "s2"):
        yield _form(f"cvt.pack.sat.{to}.s32.b32 D, A, B, C;", "b32", "s32", "s32", "b32")


def _float_conversions() -> Iterator[Form]:
    for to, source in itertools.product(_FLOATS, _FLOATS):
        modes = (
            ("", *_ROUNDINGS, ".rni", ".rzi", ".rmi", ".rpi") if to != source else ("", ".rni", ".rzi", ".rmi", ".rpi")
        )
        for mode, ftz, sat in itertools.product(modes, ("", ".ftz"), ("", ".sat")):
            yield _form(f"cvt{mode}{ftz}{sat}.{to}.{source} D, A;", to, source)
    for mode, relu, finite in itertools.product((".rn", ".rz", ".rna"), ("", ".relu"), ("", ".satfinite")):
        yield _form(f"cvt{mode}{relu}{finite}.tf32.f32 D, A;", "tf32", "f32")
        for to in ("f16", "bf16"):
            yield _form(f"cvt{mode}{relu}{finite}.{to}.f32 D, A;", to, "f32")
            yield _form(f"cvt{mode}{relu}{finite}.{to}x2.f32 D, A, B;", f"{to}x2", "f32", "f32")
    for to, relu in itertools.product(("e4m3x2", "e5m2x2"), ("", ".relu")):
        yield _form(f"cvt.rn.satfinite{relu}.{to}.f32 D, A, B;", to, "f32", "f32")
        yield _form(f"cvt.rn.satfinite{relu}.{to}.f16x2 D, A;", to, "f16x2")
        yield _form(f"cvt.rn{relu}.f16x2.{to} D, A;", "f16x2", to)


def _comparisons() -> Iterator[Form]:
    types = {
        "f16": _FLOAT_COMPARISONS,
        "bf16": _FLOAT_COMPARISONS,
        "f32": _FLOAT_COMPARISONS,
        "f64": _FLOAT_COMPARISONS,
    }
    types |= dict.fromkeys(("s16", "s32", "s64"), _COMPARISONS)
    types |= dict.fromkeys(("u16", "u32", "u64"), (*_COMPARISONS, *_UNSIGNED_COMPARISONS[2:]))
    types |= dict.fromkeys(("b16", "b32", "b64"), ("eq", "ne"))
    for kind, comparisons in types.items():
        for name, ftz in itertools.product(comparisons, ("", ".ftz") if kind in ("f16", "f32") else ("",)):
            yield _form(f"{{ .reg .pred p; setp.{name}{ftz}.{kind} p, A, B; selp.u32 D, 1, 0, p; }}", "u32", kind, kind)
        name = comparisons[-1]
        for op in ("and", "or", "xor"):
            yield _form(f"{{ .reg .pred p, q; setp.ne.u32 q, C, 0; setp.{name}.{op}.{kind} p|q, A, B, q; "
                        "selp.u32 D, 1, 0, p; @q or.b32 D, D, 2; }", "u32", kind, kind, "u32")  # fmt: skip
            yield _form(f"{{ .reg .pred q; setp.gt.s32 q, C, 0; set.{name}.{op}.u32.{kind} D, A, B, q; }}",
                        "u32", kind, kind, "u32")  # fmt: skip
        for to in ("f32", "s32", "u32"):
            yield _form(f"set.{comparisons[2 % len(comparisons)]}.{to}.{kind} D, A, B;", to, kind, kind)
        if kind not in ("f16", "bf16"):
            yield _form(f"slct.{kind}.s32 D, A, B, C;", kind, kind, kind, "s32")
            yield _form(f"slct.{kind}.f32 D, A, B, C;", kind, kind, kind, "f32")
    for kind, (name, ftz) in itertools.product(
        ("f16x2", "bf16x2"), itertools.product(_FLOAT_COMPARISONS, ("", ".ftz"))
    ):
        both = f"setp.{name}{ftz}.{kind} p|q, A, B; selp.u32 D, 1, 0, p; @q or.b32 D, D, 2;"
        yield _form(f"{{ .reg .pred p, q; {both} }}", "u32", kind, kind)
        half = kind.removesuffix("x2")
        yield _form(f"set.{name}{ftz}.{kind}.{kind} D, A, B;", kind, kind, kind)
        yield _form(f"set.{name}{ftz}.{half}.{half} D, A, B;", half, half, half)
        yield _form(f"set.{name}{ftz}.u16.{half} D, A, B;", "u16", half, half)
    for name in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        for kind in ("f32", "f64"):
            yield _form(f"{{ .reg .pred p; testp.{name}.{kind} p, A; selp.u32 D, 1, 0, p; }}", "u32", kind)


def _video() -> Iterator[Form]:
    signs = ("u32", "s32")
    operations = ("vadd", "vsub", "vabsdiff", "vmin", "vmax")
    for name, d, a, b, sat in itertools.product(operations, signs, signs, signs, ("", ".sat")):
        yield _form(f"{name}.{d}.{a}.{b}{sat} D, A, B;", d, a, b)
        for op in ("add", "min", "max"):
            yield _form(f"{name}.{d}.{a}.{b}{sat}.{op} D, A, B, C;", d, a, b, d)
    for name, a, b in itertools.product(operations, (".b0", ".b3", ".h1"), (".b1", ".h0")):
        yield _form(f"{name}.s32.s32.u32.sat D, A{a}, B{b};", "s32", "s32", "u32")
        yield _form(f"{name}.s32.s32.u32.sat D.b2, A{a}, B{b}, C;", "s32", "s32", "u32", "s32")
    for name, d, a, mode, sat in itertools.product(("vshl", "vshr"), signs, signs, ("clamp", "wrap"), ("", ".sat")):
        yield _form(f"{name}.{d}.{a}.u32{sat}.{mode} D, A, B;", d, a, "u32")
        for op in ("add", "min", "max"):
            yield _form(f"{name}.{d}.{a}.u32{sat}.{mode}.{op} D, A, B, C;", d, a, "u32", d)
    for a, b, name in itertools.product(signs, signs, _COMPARISONS):
        yield _form(f"vset.{a}.{b}.{name} D, A, B;", "u32", a, b)
        yield _form(f"vset.{a}.{b}.{name}.add D, A, B, C;", "u32", a, b, "u32")
    for d, a, b in itertools.product(signs, signs, signs):
        for scale in ("", ".shr7", ".shr15"):
            yield _form(f"vmad.{d}.{a}.{b}{scale} D, A, B, C;", d, a, b, d)
            yield _form(f"vmad.{d}.{a}.{b}.sat{scale} D, A.b1, B.h1, C;", d, a, b, d)
    names = (*operations, "vavrg")
    for name, parts, a, b, sat in itertools.product(names, ("2", "4"), signs, signs, ("", ".sat")):
        yield _form(f"{name}{parts}.{a}.{a}.{b}{sat} D, A, B, C;", a, a, b, a)
        yield _form(f"{name}{parts}.{a}.{a}.{b}.add D, A, B, C;", a, a, b, a)
    for parts, name, a in itertools.product(("2", "4"), _COMPARISONS, signs):
        yield _form(f"vset{parts}.{a}.{a}.{name} D, A, B, C;", a, a, a, a)
        yield _form(f"vset{parts}.{a}.{a}.{name}.add D, A, B, C;", a, a, a, a)


def _parts() -> Iterator[Form]:
    """Scalar video instructions on parts of registers. A card saturates u32 into a part, too, which is refused here."""
    signs = ("u32", "s32")
    operations = ("vadd", "vsub", "vabsdiff", "vmin", "vmax")
    for name, d, a, b in itertools.product(operations, signs, signs, signs):
        for part, sat in itertools.product(("b0", "b1", "b3", "h0", "h1"), ("", ".sat") if d == "s32" else ("",)):
            yield _form(f"{name}.{d}.{a}.{b}{sat} D.{part}, A, B, C;", d, a, b, d)
        yield _form(f"{name}.{d}.{a}.{b}.sat.max D, A.b1, B.h1, C;", d, a, b, d)
        yield _form(f"{name}.{d}.{a}.{b}.min D, A.h0, B.b3, C;", d, a, b, d)
    for a, b in itertools.product(signs, signs):
        yield _form(f"vset.{a}.{b}.lt D.b1, A, B, C;", a, a, b, "u32")
        yield _form(f"vset.{a}.{b}.ge D, A.b1, B.h0;", a, a, b)
        for op in ("min", "max"):
            yield _form(f"vset.{a}.{b}.ge.{op} D, A, B, C;", a, a, b, "u32")


def _searches_and_carries() -> Iterator[Form]:
    for base, offset in itertools.product(
        ("rem.u32 x, B, 32;", "mov.b32 x, B;", "mov.b32 x, 0;", "mov.b32 x, 31;"),
        ("rem.s32 y, C, 34;", "mov.b32 y, C;", "mov.b32 y, 0;", "mov.b32 y, -1;", "mov.b32 y, 2;"),
    ):
        yield _form(f"{{ .reg .b32 x, y; {base} {offset} fns.b32 D, A, x, y; }}", "b32", "b32", "b32", "b32")
    for first, then, kind in itertools.product(("add.cc", "sub.cc"), ("addc", "subc", "addc.cc", "subc.cc"),
                                               ("u32", "s64")):  # fmt: skip
        more = f"addc.{kind} D, D, 0;" if then.endswith(".cc") else ""
        yield _form(f"{{ .reg .b{kind[1:]} x; {first}.{kind} x, A, B; {then}.{kind} D, x, C; {more} }}", *4 * (kind,))


def _whole_numbers() -> Iterator[Form]:
    for op, kind in itertools.product(("add", "min", "max"), ("u16x2", "s16x2")):
        yield _form(f"{op}.{kind} D, A, B;", kind, kind, kind)
    for op, kind in itertools.product(("min", "max"), ("s16x2", "s32")):
        yield _form(f"{op}.relu.{kind} D, A, B;", kind, kind, kind)
    for op, chain, kind in itertools.product(("add", "sub"), ("cc", "c"), ("u32", "s32", "u64", "s64")):
        if chain == "cc":
            yield _form(f"{{ {op}.cc.{kind} D, A, B; {op}c.{kind} D, D, C; }}", kind, kind, kind, kind)
        else:
            yield _form(f"{{ .reg .b{kind[1:]} x; {op}.cc.{kind} x, A, B; {op}c.cc.{kind} x, x, C; "
                        f"addc.{kind} D, x, 0; }}", kind, kind, kind, kind)  # fmt: skip
    for kind, half in itertools.product(("u32", "s32", "u64", "s64"), ("lo", "hi")):
        yield _form(f"{{ .reg .b{kind[1:]} x; mad.{half}.cc.{kind} x, A, B, C; madc.hi.{kind} D, A, C, x; }}",
                    kind, kind, kind, kind)  # fmt: skip
    for table in (0x1B, 0x40, 0x6C, 0x80, 0x96, 0xB8, 0xC5, 0xE8, 0xF7, 0xFE):
        yield _form(f"lop3.b32 D, A, B, C, {table:#x};", "b32", "b32", "b32", "b32")
    yield _form("{ .reg .b32 x; rem.u32 x, B, 32; fns.b32 D, A, x, 1; }", "b32", "b32", "b32")
    for op in ("clmad", "mul24.hi", "mad24.hi", "mad24.hi.sat"):
        if op.startswith("m"):
            yield _form(f"{op}.s32 D, A, B{', C' if 'mad' in op else ''};", "s32", "s32", "s32", "s32")


def _floats() -> Iterator[Form]:
    for kind, ftz, nan, xor in itertools.product(("f16", "f16x2", "bf16", "bf16x2", "f32"), ("", ".ftz"), ("", ".NaN"),
                                                 ("", ".xorsign.abs")):  # fmt: skip
        for op in ("min", "max"):
            yield _form(f"{op}{ftz}{nan}{xor}.{kind} D, A, B;", kind, kind, kind)
    for op, kind in itertools.product(("neg", "abs"), ("f16", "f16x2", "f32", "f64")):
        for ftz in ("", ".ftz"):
            yield _form(f"{op}{ftz}.{kind} D, A;", kind, kind)
    for op, sat in itertools.product(("add", "sub", "mul"), ("", ".sat")):
        for kind in ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64"):
            yield _form(f"{op}{sat}.{kind} D, A, B;", kind, kind, kind)
    for mode, ftz, sat in itertools.product(_ROUNDINGS, ("", ".ftz"), ("", ".sat")):
        yield _form(f"sub{mode}{ftz}{sat}.f32 D, A, B;", "f32", "f32", "f32")
        yield _form(f"mad{mode}{ftz}{sat}.f32 D, A, B, C;", "f32", "f32", "f32", "f32")
    for mode in _ROUNDINGS:
        yield _form(f"sub{mode}.f64 D, A, B;", "f64", "f64", "f64")
        yield _form(f"mad{mode}.f64 D, A, B, C;", "f64", "f64", "f64", "f64")
    for kind in ("f32", "f64"):
        yield _form(f"copysign.{kind} D, A, B;", kind, kind, kind)
    for relu, kind in itertools.product(
        ("", ".relu", ".ftz", ".ftz.relu", ".ftz.sat"), ("f16", "f16x2", "bf16", "bf16x2")
    ):
        yield _form(f"fma.rn{relu}.{kind} D, A, B, C;", kind, kind, kind, kind)
    for kind in ("bf16", "bf16x2", "f16", "f16x2"):
        yield _form(f"fma.rn.oob.{kind} D, A, B, C;", kind, kind, kind, kind)
        yield _form(f"fma.rn.oob.relu.{kind} D, A, B, C;", kind, kind, kind, kind)


def _approximations() -> Iterator[Form]:
    for op in ("ex2", "lg2", "sin", "cos", "rsqrt", "sqrt", "rcp"):
        for ftz in ("", ".ftz"):
            yield _form(f"{op}.approx{ftz}.f32 D, A;", "f32", "f32")
    yield _form("tanh.approx.f32 D, A;", "f32", "f32")
    for op, ftz in itertools.product(("div.approx", "div.full"), ("", ".ftz")):
        yield _form(f"{op}{ftz}.f32 D, A, B;", "f32", "f32", "f32")
    for op in ("rcp.approx.ftz", "rsqrt.approx", "rsqrt.approx.ftz"):
        yield _form(f"{op}.f64 D, A;", "f64", "f64")
    for kind in ("f16", "f16x2"):
        yield _form(f"ex2.approx.{kind} D, A;", kind, kind)
        yield _form(f"tanh.approx.{kind} D, A;", kind, kind)
    for kind in ("bf16", "bf16x2"):
        yield _form(f"ex2.approx.ftz.{kind} D, A;", kind, kind)
        yield _form(f"tanh.approx.{kind} D, A;", kind, kind)


@functools.cache
def forms() -> tuple[Form, ...]:
    known = {form.text for form in recorded_forms()}
    made = itertools.chain(_integer_conversions(), _float_conversions(), _comparisons(), _video(), _parts(),
                           _searches_and_carries(), _whole_numbers(), _floats(), _approximations())  # fmt: skip
    found = {form.text: form for form in made if form.text not in known}
    return tuple(found.values())
