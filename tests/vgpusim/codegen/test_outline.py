"""Kernels compiled quickly, whose instructions are calls of shared functions (codegen/outline.py): same results, also
where a kernel goes on in the code made from its whole text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from vgpusim.codegen import compile as compiler
from vgpusim.codegen import emit_control, native, outline
from vgpusim.codegen.cache import DiskCache
from vgpusim.codegen.compile import CompiledKernel, compile_entry, compile_whole
from vgpusim.codegen.emit_code import QUICK_SYMBOL
from vgpusim.codegen.loader import Loader, _Quick

from tests.vgpusim.codegen import (
    harness,
    test_cooperative,
    test_kernels,
    test_random_kernel,
    test_waiting,
)
from tests.vgpusim.codegen.quickly import Switches, compile_all

# Rows of a table are summed by two warps in turn, with a barrier after each row, where printf lets the test act.
_ROWS = 6
_SUMS = (
    harness.HEADER
    + ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
    + ".global .align 1 .b8 text[4] = {104, 10, 0, 0};\n"
    + """.visible .entry sums(.param .u64 p, .param .u64 q) {
  .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .pred %p; .shared .align 4 .b8 s[256];
  ld.param.u64 %d0, [p]; ld.param.u64 %d1, [q]; mov.u32 %r0, %tid.x; mov.u32 %r1, s; mov.u32 %r7, 0;
  shl.b32 %r2, %r0, 2; add.u32 %r1, %r1, %r2; cvt.u64.u32 %d2, %r2; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
"""
    + "".join(
        f"""  ld.global.u32 %r3, [%d3+{256 * row}]; st.shared.u32 [%r1], %r3; bar.sync 0;
  xor.b32 %r4, %r2, 128; mov.u32 %r5, s; add.u32 %r4, %r4, %r5; ld.shared.u32 %r6, [%r4]; add.u32 %r7, %r7, %r6;
  setp.ne.u32 %p, %r0, 0; @%p bra M{row};
  {{ .param .b64 f; .param .b64 a; .param .b32 r; mov.u64 %d5, text; mov.u64 %d6, 0; st.param.b64 [f], %d5;
  st.param.b64 [a], %d6; call (r), vprintf, (f, a); }}
M{row}: bar.sync 0;
"""
        for row in range(_ROWS)
    )
    + "  st.global.u32 [%d4], %r7; ret; }\n"
)


@pytest.fixture(autouse=True)
def all_are_quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    harness._compiled.cache_clear()
    compile_all(monkeypatch)
    yield
    harness._compiled.cache_clear()


def _made(text: str, name: str, block: int, **options: object) -> CompiledKernel:
    return compile_entry(harness.module_of(text), name, (block, 1, 1), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", ["sm75", "sm90"])
def test_kernels_of_a_compiler(target: str) -> None:
    text = (test_kernels.KERNELS / f"basic_{target}.ptx").read_text()
    test_kernels.test_tiled_matmul(text, np.random.default_rng(7), 16)
    test_kernels.test_histogram(text, np.random.default_rng(7), "hist_shared", 50)
    test_waiting.test_tiles_of_several_warps(target)
    test_cooperative.test_a_cta_waits_for_a_higher_one((test_kernels.KERNELS / f"grid_{target}.ptx").read_text())


@pytest.mark.parametrize("seed", [7, 141])
def test_random_kernels_leave_what_a_card_leaves(seed: int) -> None:
    test_random_kernel.test_memory_is_the_cards(seed)


def test_kernels_go_on_in_their_whole_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a warp waits; quickly.py does that to all tests of this folder."""
    switches = Switches(monkeypatch, 1)
    test_kernels_of_a_compiler("sm90")
    test_random_kernel.test_memory_is_the_cards(141)
    assert switches.switched == len(switches) == 5


def test_a_kernel_goes_on_in_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a barrier, with values that are needed after it."""
    quick = _made(_SUMS, "sums", 64)
    whole = compile_whole(quick)
    assert quick.whole
    assert not whole.whole
    table = np.arange(_ROWS * 64, dtype=np.uint32).reshape(_ROWS, 64) ** 2
    expected = np.roll(table.sum(axis=0, dtype=np.uint32), 32)
    for at in range(_ROWS):
        loader, out, calls = Loader(), np.zeros(64, np.uint32), []
        monkeypatch.setattr(harness, "LOADER", loader)
        harness._compiled.cache_clear()

        class Events(harness.Events):
            def __init__(self, loader: Loader = loader, at: int = at, calls: list[int] = calls) -> None:
                super().__init__()
                self.printed = _Calls(lambda: loader.replace(quick, whole) if len(calls) == at else None, calls)

        monkeypatch.setattr(harness, "Events", Events)
        harness.run(_SUMS, "sums", 1, 64, [table, out])
        assert len(calls) == _ROWS
        assert (out == expected).all(), at


class _Calls(list[tuple[bytes, int]]):
    def __init__(self, act: Callable[[], None], calls: list[int]) -> None:
        super().__init__()
        self._act, self._calls = act, calls

    def append(self, _: tuple[bytes, int]) -> None:
        self._act()
        self._calls.append(1)


@pytest.mark.parametrize(("budget", "due"), [(0, True), (10**9, False)])
def test_what_has_used_up_its_time_is_due_once(monkeypatch: pytest.MonkeyPatch, budget: int, due: bool) -> None:
    monkeypatch.setattr(compiler, "QUICK_NS", budget)
    monkeypatch.setattr(harness, "LOADER", Loader())
    harness.run(_SUMS, "sums", 1, 64, [np.zeros((_ROWS, 64), np.uint32), np.zeros(64, np.uint32)])
    if due:
        harness._schedule_library().vgx_sim_schedule_wait()  # does not wait
    assert [bool(kernel.whole) for kernel in harness.LOADER.take_due()] == [True] * due
    assert not harness.LOADER.take_due()


@pytest.mark.parametrize("cluster", [None, (2, 1, 1)])
def test_time_is_counted_within_a_launch(monkeypatch: pytest.MonkeyPatch, cluster: tuple[int, int, int] | None) -> None:
    """Also where CTAs take turns."""
    spent: list[int] = []

    def note() -> None:
        (loaded,) = harness.LOADER._loaded.values()
        spent.append(_Quick.from_address(loaded.object.address(QUICK_SYMBOL)).spent_ns)

    class Events(harness.Events):
        def __init__(self) -> None:
            super().__init__()
            self.printed = _Calls(note, [])

    monkeypatch.setattr(harness, "LOADER", Loader())
    monkeypatch.setattr(harness, "Events", Events)
    many = _SUMS.replace("  xor", "bar.sync 0; " * 8 + "  xor")
    tables = [np.zeros((_ROWS, 64), np.uint32), np.zeros(64, np.uint32)]
    harness.run(many, "sums", 2, 64, tables, cluster=cluster)
    half = spent[: _ROWS * (2 if cluster else 1)]  # the first CTAs', which run together in a cluster
    assert half[-1] > half[0]


def test_what_nobody_has_loaded_any_more_is_not_replaced() -> None:
    loader, quick = Loader(), _made(_SUMS, "sums", 64)
    loader.load(quick)
    loader.load(quick)
    whole = compile_whole(quick)
    loader.unload(quick)
    loader.replace(quick, whole)
    loader.unload(quick)
    assert not loader._loaded
    loader.replace(quick, whole)
    assert not loader._loaded


def test_what_was_loaded_again_meanwhile_is_replaced_once() -> None:
    """The code that threads may be running stays."""
    loader, quick = Loader(), _made(_SUMS, "sums", 64)
    loader.load(quick)
    loader.unload(quick)  # while it is compiled again
    loader.load(quick)
    whole = compile_whole(quick)
    loader.replace(quick, whole)
    (loaded,) = loader._loaded.values()
    running = loaded.whole
    assert running is not None
    assert loaded.quick is None
    loader.replace(quick, whole)
    assert loaded.whole is running


def _end(_: str) -> bytes:
    """The process ends meanwhile."""
    raise ProcessLookupError


def test_quick_compilation_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPU_QUICK", "0")
    assert not _made(_SUMS, "sums", 64).whole


def test_the_cache_prefers_what_was_made_from_the_whole_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    quick = _made(_SUMS, "sums", 64, cache=cache)
    again = _made(_SUMS, "sums", 64, cache=cache)
    assert again == quick
    with monkeypatch.context() as patch:
        patch.setattr(compiler.native, "assemble", _end)
        with pytest.raises(ProcessLookupError):
            compile_whole(again, cache)
    whole = _made(_SUMS, "sums", 64, cache=cache)
    assert not whole.whole
    assert compile_whole(again, cache) == whole
    assert _made(_SUMS, "sums", 64, cache=cache) == whole
    assert _made(_SUMS, "sums", 64, cache=cache, quick=False) == whole


def _text(body: str) -> str:
    """A kernel in two warps' turns, since one without is run by rows, whole."""
    return (
        harness.HEADER
        + ".visible .entry k(.param .u64 p) { .reg .b64 %d<9>; .reg .b32 %r<99>; .reg .f32 %f<99>; .reg .pred %p<9>;\n"
        + "ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1;\n"
        + f"bar.sync 0;\n{body}\nret; }}\n"
    )


def _outlined(body: str) -> tuple[str, list[str]]:
    """The text, and the functions that instructions share."""
    made: list[tuple[str, dict[str, str]]] = []

    def note(*arguments: object) -> None:
        made.append(outline_of(*arguments))  # type: ignore[arg-type]

    outline_of = outline.outlined
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outline, "outlined", note)
        _made(_text(body), "k", 64)
    text, modules = made[0]
    return text, list(modules)


def test_instructions_share_a_function() -> None:
    """Whatever their registers and offsets."""
    loads = " ".join(f"ld.global.f32 %f{i}, [%d0+{256 * i}];" for i in range(8))
    sums = " ".join(f"fma.rn.f32 %f{i + 8}, %f{i}, %f{(i * 3 + 1) % 8}, %f{(i * 5 + 2) % 8};" for i in range(8))
    stores = " ".join(f"st.global.f32 [%d0+{256 * i}], %f{i + 8};" for i in range(8))
    text, forms = _outlined(f"{loads} {sums} {stores}")
    calls = re.findall(r"call void @(vgx\.\w+)\(", text)
    assert len(calls) >= 16
    assert len(forms) <= len(calls) // 2


def test_registers_of_a_block_share_places() -> None:
    chain = " ".join(f"mad.lo.u32 %r{i + 1}, %r{i}, %r0, %r{i};" for i in range(60))
    text, _ = _outlined(f"{chain} st.global.u32 [%d0], %r60;")
    assert len(re.findall(r"^  %shared\.slot\d+ = alloca <32 x i32>", text, re.MULTILINE)) <= 4
    out = np.zeros(64, np.uint32)
    harness.run(_text(f"{chain} st.global.u32 [%d0], %r60;"), "k", 1, 64, [out])
    lanes = np.arange(64, dtype=np.uint64)
    expected = lanes.copy()
    for _ in range(60):
        expected = (expected * lanes + expected) & 0xFFFFFFFF
    assert (out == expected.astype(np.uint32)).all()


@pytest.mark.parametrize("large_nbytes", [0, 1 << 30])
def test_a_reductions_operand_has_a_place(monkeypatch: pytest.MonkeyPatch, large_nbytes: int) -> None:
    """Which a warp needs after a barrier, though no block needs it from another."""
    monkeypatch.setattr(emit_control, "_LARGE_NBYTES", large_nbytes)
    text = _text(
        "setp.gt.u32 %p1, %r0, 3; bar.red.popc.u32 %r1, 0, %p1; setp.lt.u32 %p2, %r0, %r1; bar.red.or.pred %p3, 0, %p2;"
        " selp.b32 %r2, 1, 0, %p3; add.u32 %r1, %r1, %r2; st.global.u32 [%d0], %r1;"
    )
    assert _made(text, "k", 64).whole
    out = np.zeros(64, np.uint32)
    harness.run(text, "k", 1, 64, [out])
    assert (out == 61).all()


def test_a_kernel_whose_registers_need_much_stack_is_made_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "assemble", lambda _: native.assemble_quickly("define void @k() {\n  ret void\n}\n"))
    sums = " ".join(f"add.u64 %e{i}, %d0, {i};" for i in range(2000))
    uses = " ".join(f"st.global.u64 [%d0], %e{i};" for i in range(2000))
    text = _text(
        f".reg .b64 %e<2000>; .reg .u32 %t; mov.u32 %t, %tid.x; cvt.u64.u32 %d0, %t; {sums} @%p0 bra L; L: {uses}"
    )
    assert not _made(text, "k", 64).whole


def test_what_a_barrier_saves_is_in_its_place() -> None:
    """Nothing is copied: copies were nine tenths of some kernels of Triton's."""
    values = " ".join(f"ld.global.u32 %r{i}, [%d0+{256 * i}];" for i in range(20, 60))
    sums = " ".join(f"add.u32 %r1, %r1, %r{i};" for i in range(20, 60))
    body = f"mov.u32 %r1, 0; {values} bar.sync 0; {sums} bar.sync 0; {sums} st.global.u32 [%d0], %r1;"
    whole, _ = compiler.lower(harness.module_of(_text(body)), "k", (64, 1, 1))
    quick, _ = _outlined(body)
    assert whole.count("; restored") > 40
    assert len(quick) < len(whole) / 3
    assert quick.count("store <32 x i32>") < 9
    table = np.arange(60 * 64, dtype=np.uint32).reshape(60, 64) ** 2
    expected = 2 * table[20:].sum(axis=0, dtype=np.uint32)
    harness.run(_text(body), "k", 1, 64, [table])
    assert (table[0] == expected).all()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("load <32 x i32>, ptr %x, align 64", "<32 x i32>"),
        ("add nuw i64 %a, 3", "i64"),
        ("bitcast <32 x i32> %a to <32 x float>", "<32 x float>"),
        ("icmp ne <32 x i64> %a, %b", "<32 x i1>"),
        ("fcmp uno float %a, %a", "i1"),
        ("getelementptr i8, ptr %frame, i64 8", "ptr"),
        ("call {i32, i1} @f(i32 %a)", "{i32, i1}"),
        ("phi i32 [ %a, %b ]", "i32"),
        ("shufflevector <32 x i32> %a, <32 x i32> %b, <16 x i32> zeroinitializer", None),
    ],
)
def test_types(text: str, kind: str | None) -> None:
    """None: an instruction whose result others need stays where it is."""
    assert outline.type_of(text) == kind


def test_what_llvm_refuses_is_compiled_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outline, "outlined", lambda *_: ("define void @f() { not IR }", {}))
    monkeypatch.setattr(compiler, "replaceable", lambda text, _budget_ns: text)
    cache = DiskCache(tmp_path)
    compiled = compile_entry(compiler.PtxModule.link([_SUMS]), "sums", (64, 1, 1), cache=cache)
    assert not compiled.whole
    assert compile_entry(compiler.PtxModule.link([_SUMS]), "sums", (64, 1, 1), cache=cache) == compiled
