"""Integer, logic and bit instructions against Python integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.vgpusim.codegen.instruction import Array, apply, integers


def width(kind: str) -> int:
    return int(kind[1:])


def wrap(value: int, kind: str) -> int:
    value &= (1 << width(kind)) - 1
    return value - (1 << width(kind)) if kind[0] == "s" and value >> (width(kind) - 1) else value


def dtype(kind: str) -> str:
    return f"{'i' if kind[0] == 's' else 'u'}{width(kind) // 8}"


def check(
    body: str, kinds: list[str], out: str, function: Callable[..., int], limit: dict[int, int] | None = None
) -> None:
    inputs = [integers(dtype(kind), seed=i) for i, kind in enumerate(kinds)]
    for index, modulus in (limit or {}).items():
        inputs[index] = (inputs[index].astype(np.uint64) % np.uint64(modulus)).astype(inputs[index].dtype)
    (result,) = apply(body, inputs, dtype(out))
    for i, values in enumerate(zip(*(a.tolist() for a in inputs), strict=True)):
        expected = wrap(function(*values), out)
        assert int(result[i]) == expected, f"{body} on {values}: {result[i]}, expected {expected}"


KINDS = ["u16", "s16", "u32", "s32", "u64", "s64"]


def quotient(a: int, b: int) -> int:
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return a if b == 0 else a - b * quotient(a, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("add", lambda a, b: a + b),
        ("sub", lambda a, b: a - b),
        ("mul.lo", lambda a, b: a * b),
        ("div", quotient),
        ("rem", remainder),
        ("min", min),
        ("max", max),
    ],
)
def test_binary(name: str, kind: str, function: Callable[..., int]) -> None:
    check(f"{name}.{kind} %d0, %a0, %a1;", [kind, kind], kind, function)


@pytest.mark.parametrize("kind", KINDS)
def test_mul_hi_mad_sad(kind: str) -> None:
    check(f"mul.hi.{kind} %d0, %a0, %a1;", [kind, kind], kind, lambda a, b: (a * b) >> width(kind))
    check(f"mad.lo.{kind} %d0, %a0, %a1, %a2;", [kind] * 3, kind, lambda a, b, c: a * b + c)
    check(f"mad.hi.{kind} %d0, %a0, %a1, %a2;", [kind] * 3, kind, lambda a, b, c: ((a * b) >> width(kind)) + c)
    check(f"sad.{kind} %d0, %a0, %a1, %a2;", [kind] * 3, kind, lambda a, b, c: abs(a - b) + c)


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32"])
def test_wide(kind: str) -> None:
    out = f"{kind[0]}{width(kind) * 2}"
    check(f"mul.wide.{kind} %d0, %a0, %a1;", [kind, kind], out, lambda a, b: a * b)
    check(f"mad.wide.{kind} %d0, %a0, %a1, %a2;", [kind, kind, out], out, lambda a, b, c: a * b + c)


@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_abs_neg(kind: str) -> None:
    check(f"abs.{kind} %d0, %a0;", [kind], kind, abs)
    check(f"neg.{kind} %d0, %a0;", [kind], kind, lambda a: -a)


def clamp(value: int, kind: str) -> int:
    low, high = (
        (-(1 << (width(kind) - 1)), (1 << (width(kind) - 1)) - 1) if kind[0] == "s" else (0, (1 << width(kind)) - 1)
    )
    return max(low, min(high, value))


def test_saturating() -> None:
    check("add.sat.s32 %d0, %a0, %a1;", ["s32", "s32"], "s32", lambda a, b: clamp(a + b, "s32"))
    check("sub.sat.s32 %d0, %a0, %a1;", ["s32", "s32"], "s32", lambda a, b: clamp(a - b, "s32"))


@pytest.mark.parametrize("kind", ["u16", "u32", "u64"])
def test_logic(kind: str) -> None:
    bits = f"b{width(kind)}"
    check(f"and.{bits} %d0, %a0, %a1;", [kind, kind], kind, lambda a, b: a & b)
    check(f"or.{bits} %d0, %a0, %a1;", [kind, kind], kind, lambda a, b: a | b)
    check(f"xor.{bits} %d0, %a0, %a1;", [kind, kind], kind, lambda a, b: a ^ b)
    check(f"not.{bits} %d0, %a0;", [kind], kind, lambda a: ~a)
    check(f"cnot.{bits} %d0, %a0;", [kind], kind, lambda a: int(a == 0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("modulus", [80, 1 << 32])
def test_shift_clamps(kind: str, modulus: int) -> None:
    n = width(kind)
    check(f"shl.b{n} %d0, %a0, %a1;", [kind, "u32"], kind, lambda a, b: 0 if b >= n else a << b, {1: modulus})
    check(f"shr.{kind} %d0, %a0, %a1;", [kind, "u32"], kind, lambda a, b: a >> min(b, n), {1: modulus})


def test_24_bit_multiply() -> None:
    def signed(x: int) -> int:
        return wrap(x << 8, "s32") >> 8

    check("mul24.lo.s32 %d0, %a0, %a1;", ["s32", "s32"], "s32", lambda a, b: signed(a) * signed(b))
    check("mul24.hi.s32 %d0, %a0, %a1;", ["s32", "s32"], "s32", lambda a, b: (signed(a) * signed(b)) >> 16)
    check("mad24.lo.u32 %d0, %a0, %a1, %a2;", ["u32"] * 3, "u32", lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c)


@pytest.mark.parametrize("n", [32, 64])
def test_counts(n: int) -> None:
    check(f"popc.b{n} %d0, %a0;", [f"u{n}"], "u32", lambda a: a.bit_count())
    check(f"clz.b{n} %d0, %a0;", [f"u{n}"], "u32", lambda a: n - a.bit_length())
    check(f"brev.b{n} %d0, %a0;", [f"u{n}"], f"u{n}", lambda a: int(f"{a:0{n}b}"[::-1], 2))
    check(f"bfind.u{n} %d0, %a0;", [f"u{n}"], "u32", lambda a: a.bit_length() - 1)
    check(f"bfind.s{n} %d0, %a0;", [f"s{n}"], "u32", lambda a: (a if a >= 0 else ~a).bit_length() - 1)
    check(f"bfind.shiftamt.u{n} %d0, %a0;", [f"u{n}"], "u32", lambda a: n - a.bit_length() if a else -1)


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bit_fields(kind: str) -> None:
    """The definition in the PTX ISA reference, bit by bit."""
    n = width(kind)

    def extract(a: int, b: int, c: int) -> int:
        pos, length, a = b & 0xFF, c & 0xFF, a & ((1 << n) - 1)
        sign = 0 if kind[0] == "u" or length == 0 else a >> min(pos + length - 1, n - 1) & 1
        return sum((a >> (pos + i) & 1 if i < length and pos + i < n else sign) << i for i in range(n))

    def insert(a: int, b: int, c: int, d: int) -> int:
        pos, length = c & 0xFF, d & 0xFF
        for i in range(length):
            if pos + i < n:
                b = b & ~(1 << (pos + i)) | (a >> i & 1) << (pos + i)
        return b

    check(f"bfe.{kind} %d0, %a0, %a1, %a2;", [kind, "u32", "u32"], kind, extract, {1: 70, 2: 70})
    check(f"bfi.b{n} %d0, %a0, %a1, %a2, %a3;", [kind, kind, "u32", "u32"], kind, insert, {2: 70, 3: 70})


def permuted(a: int, b: int, selector: int) -> int:
    source = (b << 32 | a).to_bytes(8, "little")
    out = []
    for i in range(4):
        nibble = selector >> (4 * i) & 15
        byte = source[nibble & 7]
        out.append((0xFF if byte & 0x80 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(out), "little")


def test_prmt() -> None:
    check("prmt.b32 %d0, %a0, %a1, %a2;", ["u32"] * 3, "u32", permuted)
    check("prmt.b32 %d0, %a0, %a1, 0x5410;", ["u32"] * 2, "u32", lambda a, b: permuted(a, b, 0x5410))
    check("prmt.b32 %d0, %a0, %a1, 0xbb32;", ["u32"] * 2, "u32", lambda a, b: permuted(a, b, 0xBB32))
    modes = {
        "f4e": ["3210", "4321", "5432", "6543"], "b4e": ["5670", "6701", "7012", "0123"],
        "rc8": ["0000", "1111", "2222", "3333"], "ecl": ["3210", "3211", "3222", "3333"],
        "ecr": ["0000", "1110", "2210", "3210"], "rc16": ["1010", "3232", "1010", "3232"],
    }  # fmt: skip
    for mode, table in modes.items():
        check(f"prmt.b32.{mode} %d0, %a0, %a1, %a2;", ["u32"] * 3, "u32",
              lambda a, b, c, table=table: permuted(a, b, int(table[c & 3], 16)))  # fmt: skip


@pytest.mark.parametrize("table", [0x96, 0xE8, 0x1A, 0x00, 0xFF, 0x40])
def test_lop3(table: int) -> None:
    def logic(a: int, b: int, c: int) -> int:
        return sum((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(32))

    check(f"lop3.b32 %d0, %a0, %a1, %a2, {table};", ["u32"] * 3, "u32", logic)


def test_funnel_shift() -> None:
    kinds = ["u32"] * 3
    for mode, limit in (("wrap", lambda c: c & 31), ("clamp", lambda c: min(c, 32))):
        check(f"shf.l.{mode}.b32 %d0, %a0, %a1, %a2;", kinds, "u32",
              lambda a, b, c, limit=limit: ((b << 32 | a) << limit(c)) >> 32, {2: 50})  # fmt: skip
        check(f"shf.r.{mode}.b32 %d0, %a0, %a1, %a2;", kinds, "u32",
              lambda a, b, c, limit=limit: (b << 32 | a) >> limit(c), {2: 50})  # fmt: skip


@pytest.mark.parametrize("kinds", [("s32", "s32"), ("u32", "u32"), ("s32", "u32")])
def test_dot_products(kinds: tuple[str, str]) -> None:
    def part(x: int, at: int, n: int, kind: str) -> int:
        return wrap(x >> at, f"{kind[0]}{n}")

    a_kind, b_kind = kinds
    out = "u32" if kinds == ("u32", "u32") else "s32"
    check(f"dp4a.{a_kind}.{b_kind} %d0, %a0, %a1, %a2;", ["u32", "u32", out], out,
          lambda a, b, c: c + sum(part(a, 8 * i, 8, a_kind) * part(b, 8 * i, 8, b_kind) for i in range(4)))  # fmt: skip
    for half, at in (("lo", 0), ("hi", 16)):
        check(f"dp2a.{half}.{a_kind}.{b_kind} %d0, %a0, %a1, %a2;", ["u32", "u32", out], out,
              lambda a, b, c, at=at: c + sum(part(a, 16 * i, 16, a_kind) * part(b, at + 8 * i, 8, b_kind)
                                             for i in range(2)))  # fmt: skip


def test_masks_and_extension() -> None:
    def mask(a: int, b: int) -> int:
        return ((1 << min(b, 32)) - 1) << min(a, 32)

    check("bmsk.clamp.b32 %d0, %a0, %a1;", ["u32", "u32"], "u32", mask, {0: 40, 1: 40})
    check("bmsk.wrap.b32 %d0, %a0, %a1;", ["u32", "u32"], "u32", lambda a, b: mask(a & 31, b & 31))
    check("szext.clamp.u32 %d0, %a0, %a1;", ["u32", "u32"], "u32", lambda a, b: a & ((1 << min(b, 32)) - 1), {1: 40})


def test_extended_precision() -> None:
    """128-bit sums and differences from 64-bit instructions; a 64-bit multiply-add from 32-bit instructions."""
    a, b = integers("u8", seed=1), integers("u8", seed=2)
    c, d = integers("u8", seed=3), integers("u8", seed=4)
    wide = lambda hi, lo: int(hi) << 64 | int(lo)  # noqa: E731
    for name, sign in (("add", 1), ("sub", -1)):
        low, high = apply(f"{name}.cc.u64 %d0, %a0, %a2; {name}c.u64 %d1, %a1, %a3;", [a, b, c, d], "u8", 2)
        for i in range(a.size):
            expected = (wide(b[i], a[i]) + sign * wide(d[i], c[i])) % (1 << 128)
            assert wide(high[i], low[i]) == expected
    x, y, z, w = (integers("u4", seed=i) for i in range(4))
    body = "mad.lo.cc.u32 %d0, %a0, %a1, %a2; madc.hi.u32 %d1, %a0, %a1, %a3;"
    low, high = apply(body, [x, y, z, w], "u4", 2)
    for i in range(x.size):
        expected = (int(x[i]) * int(y[i]) + (int(w[i]) << 32 | int(z[i]))) % (1 << 64)
        assert int(high[i]) << 32 | int(low[i]) == expected


COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COMPARISONS)
def test_setp_selp(kind: str, name: str) -> None:
    a, b = integers(dtype(kind), seed=1), integers(dtype(kind), seed=2)
    b[::3] = a[::3]
    compare = COMPARISONS[name]
    body = f"setp.{name}.{kind} %p1|%p2, %a0, %a1; selp.b32 %d0, 1, 0, %p1; selp.b32 %d1, 1, 0, %p2;"
    first, second = apply(body, [a, b], "u4", 2)
    assert [int(compare(x, y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)] == first.tolist()
    assert (first ^ second == 1).all()


def test_setp_combines_and_unsigned_names() -> None:
    a, b = integers("u4", seed=1), integers("u4", seed=2)
    body = (
        "setp.ge.u32 %p3, %a0, 1000; setp.lo.and.u32 %p1|%p2, %a0, %a1, !%p3; selp.u32 %d0, 1, 0, %p1;"
        "selp.u32 %d1, 1, 0, %p2;"
    )
    first, second = apply(body, [a, b], "u4", 2)
    assert first.tolist() == ((a < b) & ~(a >= 1000)).astype(int).tolist()
    assert second.tolist() == (~(a < b) & ~(a >= 1000)).astype(int).tolist()
    (third,) = apply("setp.hs.xor.u32 %p1, %a0, %a1, 1; set.lt.u32.s32 %d0, %a0, %a1;", [a, b], "u4")
    assert third.tolist() == np.where(a.view("i4") < b.view("i4"), 0xFFFFFFFF, 0).tolist()


def test_predicate_logic_and_slct() -> None:
    a, b, c = integers("i4", seed=1), integers("i4", seed=2), integers("i4", seed=3)
    body = (
        "setp.lt.s32 %p1, %a0, 0; setp.lt.s32 %p2, %a1, 0; xor.pred %p3, %p1, %p2; not.pred %p4, %p3;"
        "and.pred %p5, %p4, %p1;"
        "mov.pred %p6, %p5; selp.s32 %d0, %a0, %a1, %p6; slct.s32.s32 %d1, %a0, %a1, %a2;"
    )
    first, second = apply(body, [a, b, c], "i4", 2)
    assert first.tolist() == np.where((a < 0) & (b < 0), a, b).tolist()
    assert second.tolist() == np.where(c >= 0, a, b).tolist()


def test_guards() -> None:
    a: Array = integers("i4")
    body = "mov.u32 %d0, 5; setp.gt.s32 %p1, %a0, 0; @%p1 add.s32 %d0, %d0, %a0; @!%p1 mov.u32 %d0, 9;"
    (result,) = apply(body, [a], "i4")
    assert result.tolist() == [wrap(5 + x, "s32") if x > 0 else 9 for x in a.tolist()]


def test_pack_and_unpack() -> None:
    a, b = integers("u4", seed=1), integers("u4", seed=2)
    declare = ".reg .b16 %h<4>;"
    body = (
        "mov.b64 %d0, {%a0, %a1}; mov.b32 {%h0, %h1}, %a0; mov.b32 {%h2, _}, %a1; mov.b32 %r0, {%h1, %h2};"
        "cvt.u64.u32 %d1, %r0;"
    )
    pair, mixed = apply(body, [a, b], "u8", 2, declare)
    assert pair.tolist() == [int(x) | int(y) << 32 for x, y in zip(a, b, strict=True)]
    assert mixed.tolist() == [int(x) >> 16 | (int(y) & 0xFFFF) << 16 for x, y in zip(a, b, strict=True)]
