"""Products by pairs have the bits of products one by one."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from vgpusim.codegen import emit_pairs, emit_tile, native
from vgpusim.codegen.compile import PtxModule, lower
from vgpusim.codegen.emitter import Emitter

from tests.vgpusim.codegen.harness import HEADER, run

BLOCK = (16, 16, 1)
_HEAD = """.visible .entry k(.param .u64 out, .param .u64 table)
{{ .reg .b64 %x<8>; .reg .b32 %r<12>; .reg .f32 %f<200>; .reg .pred %p<3>;
.shared .align 8 .b8 a[4096]; .shared .align 8 .b8 b[4096];
ld.param.u64 %x0, [out]; ld.param.u64 %x1, [table]; mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y;
mad.lo.s32 %r4, %r2, 16, %r1; mul.wide.u32 %x3, %r4, 4; add.u64 %x4, %x1, %x3; add.u64 %x5, %x0, %x3;
ld.global.f32 %f0, [%x4]; ld.global.f32 %f1, [%x4+1024]; shl.b32 %r5, %r4, 2;
mov.u32 %r6, a; add.s32 %r7, %r6, %r5; mov.u32 %r8, b; add.s32 %r9, %r8, %r5;
st.shared.f32 [%r7], %f0; st.shared.f32 [%r7+1024], %f1; st.shared.f32 [%r9], %f1; st.shared.f32 [%r9+1024], %f0;
bar.sync 0; shl.b32 %r10, %r1, 3; add.s32 %r10, %r6, %r10; shl.b32 %r11, %r2, 3; add.s32 %r11, %r8, %r11;
{body}
st.global.f32 [%x5], %f10; st.global.f32 [%x5+1024], %f11; st.global.f32 [%x5+2048], %f12;
st.global.f32 [%x5+3072], %f13; ret; }}
"""
_START = "".join(f"mov.f32 %f{10 + i}, 0f00000000;\n" for i in range(4))


def steps(fma: str, new: bool, swapped: bool) -> str:
    """Four sums of eight products, each in registers of its own or in place."""
    lines, sums = [_START], [10, 11, 12, 13]
    for k in range(8):
        x, y, z, w = range(20 + 4 * k, 24 + 4 * k)
        lines.append(f"ld.shared.v2.f32 {{%f{x}, %f{y}}}, [%r10+{128 * k}];")
        lines.append(f"ld.shared.v2.f32 {{%f{z}, %f{w}}}, [%r11+{128 * k}];")
        for i, (one, other) in enumerate(((x, z), (x, w), (y, z), (y, w))):
            target = 60 + 4 * k + i if new and k < 7 else 10 + i
            a, b = (other, one) if swapped else (one, other)
            lines.append(f"{fma} %f{target}, %f{a}, %f{b}, %f{sums[i]};")
            sums[i] = target
    return "\n".join(lines)


def ordered(seed: int) -> str:
    """Products in an order in which some may not wait for their partners."""
    source = random.Random(seed)
    lines = [_START]
    for k in range(8):
        lines.append(f"ld.shared.v2.f32 {{%f20, %f21}}, [%r10+{128 * k}];")
        lines.append(f"ld.shared.v2.f32 {{%f22, %f23}}, [%r11+{128 * k}];")
        for _ in range(10):
            target, term = (10 + source.randrange(4) for _ in range(2))
            lines.append(
                f"fma.rn.f32 %f{target}, %f{20 + source.randrange(2)}, %f{22 + source.randrange(2)}, %f{term};"
            )
            if source.random() < 0.1:
                lines.append(f"add.f32 %f{20 + source.randrange(4)}, %f{10 + source.randrange(4)}, %f22;")
    return "\n".join(lines)


def rounds(extra: str) -> str:
    """Sums that live over the barriers of a loop; `extra` follows the products in each round."""
    lines = [_START, "mov.u32 %r3, 3;", "LOOP:"]
    for k in range(8):
        x, y, z, w = range(20 + 4 * k, 24 + 4 * k)
        lines.append(f"ld.shared.v2.f32 {{%f{x}, %f{y}}}, [%r10+{128 * k}];")
        lines.append(f"ld.shared.v2.f32 {{%f{z}, %f{w}}}, [%r11+{128 * k}];")
        for i, (one, other) in enumerate(((x, z), (x, w), (y, z), (y, w))):
            target, before = 60 + 4 * k + i if k < 7 else 10 + i, 56 + 4 * k + i if k else 10 + i
            lines.append(f"fma.rn.f32 %f{target}, %f{one}, %f{other}, %f{before};")
    lines += [extra, "bar.sync 0;", "st.shared.f32 [%r7], %f10;", "bar.sync 0;"]
    return "\n".join([*lines, "sub.s32 %r3, %r3, 1;", "setp.ne.s32 %p0, %r3, 0;", "@%p0 bra LOOP;"])


def both(body: str, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """The results by pairs and without them, as bits; that there were pairs."""
    source = np.random.default_rng(3)
    table = source.standard_normal(512, dtype=np.float32)
    table[[3, 70, 200, 300]] = np.inf, np.nan, 1e-40, -np.inf
    table[100:110] = source.standard_normal(10, dtype=np.float32) * np.float32(1e-39)
    text = HEADER + _HEAD.format(body=body)
    with monkeypatch.context() as patch:
        patch.setattr(native, "has_few_registers", lambda: False)
        assert "@llvm.fma.v64f32" in lower(PtxModule.parse(text), "k", BLOCK)[0]
    results = []
    for least, name in ((emit_pairs._LEAST, "pairs"), (1000, "single")):
        monkeypatch.setattr(emit_pairs, "_LEAST", least)
        out = np.zeros(1024, np.uint32)
        run(f"{text}// {name}\n", "k", 1, BLOCK, [out, table])
        results.append(out)
    return results[0], results[1]


@pytest.mark.parametrize("fma", ["fma.rn.f32", "fma.rn.ftz.f32"])
@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_tile(fma: str, new: bool, swapped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, single = both(steps(fma, new, swapped), monkeypatch)
    assert np.count_nonzero(single) > 900
    assert np.array_equal(pairs, single)


@pytest.mark.parametrize("seed", [0, 1, 2, 5])
def test_orders(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums that are read, or overwritten, before the other product of a pair."""
    monkeypatch.setattr(emit_pairs, "_LEAST", 1)
    pairs, single = both(ordered(seed), monkeypatch)
    assert np.array_equal(pairs, single)


@pytest.mark.parametrize("first", ["%f10, %f12", "%f24, %f25"])  # terms, or factors
def test_rows_that_only_some_lanes_load(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other lanes keep what the registers had."""
    body = steps("fma.rn.f32", new=False, swapped=False)
    line = f"@%q ld.shared.v2.f32 {{{first}}}, [%r10+512];"
    lines = body.splitlines()
    at = [i for i, text in enumerate(lines) if text.startswith("fma")][4]
    lines[at:at] = ["{ .reg .pred %q; setp.gt.u32 %q, %r1, 5;", line, "}"]
    pairs, single = both("\n".join(lines), monkeypatch)
    assert np.array_equal(pairs, single)


_ONE_SUM = {
    "none": "",
    "one read": "mul.f32 %f15, %f12, 0f3F000000; st.shared.f32 [%r9], %f15;",
    "one written": "add.f32 %f12, %f11, 0f3F800000;",
    "one written by some lanes": "setp.lt.u32 %p1, %r1, %r3; @%p1 mov.f32 %f10, %f13;",
    "one written in a branch": "setp.lt.u32 %p1, %r1, 5; @%p1 bra NEXT; add.f32 %f11, %f10, %f12; NEXT:",
    "exchanged": "mov.f32 %f16, %f10; mov.f32 %f10, %f12; mov.f32 %f12, %f16;",
}


@pytest.mark.parametrize("extra", _ONE_SUM.values(), ids=list(_ONE_SUM))
def test_sums_over_barriers(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, single = both(rounds(extra), monkeypatch)
    assert np.count_nonzero(single) > 900
    assert np.array_equal(pairs, single)


def test_sums_with_other_partners_in_another_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """%f12 is %f10's partner, then %f14's."""
    lines = [_START, "mov.f32 %f14, 0f3F800000; mov.f32 %f15, 0f40000000;"]
    for name, sums in (("A", (10, 11, 12, 13)), ("B", (12, 13, 14, 15))):
        lines += ["mov.u32 %r3, 3;", f"{name}:"]
        for k in range(8):
            x, y, z, w = range(20 + 4 * k, 24 + 4 * k)
            lines.append(f"ld.shared.v2.f32 {{%f{x}, %f{y}}}, [%r10+{128 * k}];")
            lines.append(f"ld.shared.v2.f32 {{%f{z}, %f{w}}}, [%r11+{128 * k}];")
            for target, one, other in zip(sums, (x, x, y, y), (z, w, z, w), strict=True):
                lines.append(f"fma.rn.f32 %f{target}, %f{one}, %f{other}, %f{target};")
        lines += ["bar.sync 0;", "sub.s32 %r3, %r3, 1;", "setp.ne.s32 %p0, %r3, 0;", f"@%p0 bra {name};"]
    lines.append("add.f32 %f10, %f10, %f14; add.f32 %f11, %f11, %f15;")
    pairs, single = both("\n".join(lines), monkeypatch)
    assert np.array_equal(pairs, single)


def test_a_sum_with_another_partner_before_a_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    """%f10 shares a place with %f12, which is written between %f10's instruction and that of its partner here."""
    monkeypatch.setattr(emit_pairs, "_LEAST", 1)
    body = f"""{_START} mov.u32 %r3, 3; mov.f32 %f17, %f1;
LOOP: ld.shared.v2.f32 {{%f20, %f21}}, [%r10]; ld.shared.v2.f32 {{%f22, %f23}}, [%r11];
fma.rn.f32 %f10, %f20, %f22, %f10; fma.rn.f32 %f12, %f21, %f22, %f12; setp.eq.s32 %p1, %r3, 7; @%p1 bra NEXT;
NEXT: ld.shared.v2.f32 {{%f24, %f25}}, [%r10+128]; ld.shared.v2.f32 {{%f26, %f27}}, [%r11+128];
fma.rn.f32 %f10, %f24, %f26, %f0; add.f32 %f12, %f12, %f1; fma.rn.f32 %f16, %f25, %f26, %f1;
bar.sync 0; add.f32 %f17, %f17, %f16; add.f32 %f17, %f17, %f10; add.f32 %f17, %f17, %f12; add.f32 %f13, %f13, %f10;
sub.s32 %r3, %r3, 1; setp.ne.s32 %p0, %r3, 0; @%p0 bra LOOP; mov.f32 %f11, %f17;"""
    assert '"r %f10 %f12"' in lower(PtxModule.parse(HEADER + _HEAD.format(body=body)), "k", BLOCK)[0]
    pairs, single = both(body, monkeypatch)
    assert np.array_equal(pairs, single)


def test_a_pair_of_sums_has_one_place() -> None:
    text = lower(PtxModule.parse(HEADER + _HEAD.format(body=rounds(""))), "k", BLOCK)[0]
    assert re.search(r'%"r %f10 %f12" = getelementptr i8, ptr %frame', text)
    assert '%"r %f12" =' not in text


def _tiled(body: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether products of halves are made for a processor with few registers; its results are those of other code."""
    results, tiles, emit = [], [], emit_tile.emit

    def noted(e: Emitter, tile: emit_tile.Tile) -> None:
        tiles.append(tile)
        emit(e, tile)

    monkeypatch.setattr(emit_tile, "emit", noted)
    for few in (True, False):
        monkeypatch.setattr(native, "has_few_registers", lambda few=few: few)
        text = HEADER + _HEAD.format(body=body)
        source = np.random.default_rng(3)
        table = source.standard_normal(512, dtype=np.float32)
        table[[3, 70, 200, 300]] = np.inf, np.nan, 1e-40, -np.inf
        out = np.zeros(1024, np.uint32)
        run(f"{text}// {few}\n", "k", 1, BLOCK, [out, table])
        results.append(out)
    assert np.count_nonzero(results[1]) > 900
    assert np.array_equal(results[0], results[1])
    return bool(tiles)


_TILES = {
    "sums": (rounds(""), True),
    "more sums": (rounds("add.f32 %f14, %f10, %f11; st.shared.f32 [%r9], %f14;"), True),
    "factors swapped": (re.sub(r"(fma\S+ %f\d+), (%f\d+), (%f\d+)", r"\1, \3, \2", rounds("")), True),
    "ftz": (rounds("").replace("fma.rn.f32", "fma.rn.ftz.f32"), True),
    "addresses between": (rounds("").replace("+512]", "]").replace("LOOP:", "LOOP: add.s32 %r10, %r10, 0;", 1), True),
    "a loaded value read between": (
        rounds("add.f32 %f11, %f11, %f150;").replace(
            "LOOP:", "LOOP: ld.shared.f32 %f151, [%r9]; mul.f32 %f150, %f151, %f151;", 1), True),
    "a factor read later": (rounds("add.f32 %f10, %f10, %f20; add.f32 %f11, %f11, %f22;"), False),
    "a sum of one step read later": (rounds("add.f32 %f13, %f13, %f64;"), False),
    "a store between": (
        rounds("").replace("ld.shared.v2.f32 {%f36", "st.shared.f32 [%r9], %f0; ld.shared.v2.f32 {%f36"), False),
    "the second of a pair apart": (rounds("").replace("fma.rn.f32 %f13", "st.shared.f32 [%r9], %f0; fma.rn.f32 %f13"),
                                   False),
}  # fmt: skip


@pytest.mark.parametrize(("body", "tiled"), _TILES.values(), ids=list(_TILES))
def test_halves_of_sums(body: str, tiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _tiled(body, monkeypatch) is tiled


def test_halves_of_sums_that_change_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step of each sum adds to the other sum."""
    body = rounds("")
    for old, new in (("f10", "A"), ("f12", "B"), ("f11", "f10"), ("f13", "f12"), ("A", "f11"), ("B", "f13")):
        body = re.sub(rf"(fma\S+ %f6[0-3], .*, %){old};", rf"\1{new};", body)
    assert not _tiled(body, monkeypatch)


@pytest.mark.parametrize(("seed", "tiled"), [(0, True), (1, True), (2, True), (3, False)])
def test_halves_of_sums_in_any_order(seed: int, tiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the last case one sum goes on with the other."""
    source = random.Random(seed)
    lines = [_START, "mov.u32 %r3, 3;", "LOOP:"]
    for k in range(12):
        x, z = 120 + 2 * k, 150 + 2 * k
        lines.append(f"ld.shared.v2.f32 {{%f{x}, %f{x + 1}}}, [%r10+{128 * source.randrange(8)}];")
        lines.append(f"ld.shared.v2.f32 {{%f{z}, %f{z + 1}}}, [%r11+{128 * source.randrange(8)}];")
        for side in source.sample((0, 1), 2):
            terms = 1 - side if (k, tiled) == (6, False) else side
            turn = source.choice((1, -1))
            for index in (0, 2):
                one, other = (x + index // 2, z + side)[::turn]
                target = (60 + 4 * k if k < 11 else 10) + side + index
                before = (56 + 4 * k if k else 10) + terms + index
                lines.append(f"fma.rn.f32 %f{target}, %f{one}, %f{other}, %f{before};")
    lines += ["bar.sync 0;", "sub.s32 %r3, %r3, 1;", "setp.ne.s32 %p0, %r3, 0;", "@%p0 bra LOOP;"]
    assert _tiled("\n".join(lines), monkeypatch) is tiled
