"""Functions that kernels compiled quickly share (codegen/shared_forms.py): compiled once, and told apart by
what they use."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from vgpusim.codegen import native, shared_forms
from vgpusim.codegen.cache import DiskCache
from vgpusim.codegen.compile import CompiledKernel, compile_entry
from vgpusim.codegen.shared_forms import PLACEHOLDER, Definitions, name_of

from tests.vgpusim.codegen import harness
from tests.vgpusim.codegen.quickly import compile_all

_FUNCTION = f"define void {PLACEHOLDER}ptr %a) noinline #0 {{\nentry:\n  call void @one(ptr %a)\n  ret void\n}}\n"
_OTHERS = """declare i32 @llvm.cttz.i32(i32, i1)
@table = private constant [1 x i64] [i64 7]
define internal void @one(ptr %a,
    ptr %b) noinline #0 {
  %x = call i32 @llvm.cttz.i32(i32 8, i1 true), !prof !1
  call void @"two.x"(ptr @table)
  ret void
}
define internal void @"two.x"(ptr %a) noinline #0 {
  ret void
}
define internal void @three(ptr %a) noinline #0 {
  ret void
}
attributes #0 = { nounwind }
!1 = !{!"branch_weights", i32 1}
!2 = !{}
"""


@pytest.fixture(autouse=True)
def all_are_quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    compile_all(monkeypatch)
    monkeypatch.setattr(shared_forms, "_objects", type(shared_forms._objects)())
    monkeypatch.setattr(shared_forms, "_nbytes", 0)
    harness._compiled.cache_clear()
    yield
    harness._compiled.cache_clear()


@pytest.fixture
def assembled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are compiled without passes."""
    texts: list[str] = []
    assemble = native.assemble_quickly

    def note(text: str) -> bytes:
        texts.append(text)
        return assemble(text)

    monkeypatch.setattr(native, "assemble_quickly", note)
    return texts


def _text(factor: int) -> str:
    """A kernel in two warps' turns."""
    sums = " ".join(f"fma.rn.f32 %f{i + 1}, %f{i}, %f{i}, %f0;" for i in range(factor))
    return (
        harness.HEADER
        + ".visible .entry k(.param .u64 p) { .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .f32 %f<99>;\n"
        + "ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1;\n"
        + f"ld.global.f32 %f0, [%d0]; bar.sync 0;\n{sums} st.global.f32 [%d0], %f{factor}; ret; }}\n"
    )


def _made(factor: int, cache: DiskCache | None = None) -> CompiledKernel:
    return compile_entry(harness.module_of(_text(factor)), "k", (64, 1, 1), cache=cache)


def test_a_second_kernel_needs_no_new_function(assembled: list[str]) -> None:
    assert _made(8).whole
    first = len(assembled)
    assert first > 4
    assert _made(9).whole
    assert len(assembled) == first + 1  # the kernel alone
    data = np.linspace(-0.5, 0.5, 64, dtype=np.float32)
    expected = data.copy()
    for _ in range(9):
        expected = (expected.astype(np.float64) * expected + data).astype(np.float32)
    harness.run(_text(9), "k", 1, 64, [data])
    assert np.allclose(data, expected, rtol=1e-5)


def test_another_process_reads_them(assembled: list[str], tmp_path: Path) -> None:
    _made(8, DiskCache(tmp_path))
    shared_forms._objects.clear()
    first = len(assembled)
    _made(9, DiskCache(tmp_path))
    assert len(assembled) == first + 1


def test_no_more_are_kept_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_forms, "_KEPT_NBYTES", 5000)
    assert _made(8).whole
    assert 0 < shared_forms._nbytes <= 5000
    assert shared_forms._nbytes == sum(map(len, shared_forms._objects.values()))


def test_a_module_has_what_its_function_uses() -> None:
    module = Definitions(_OTHERS).module_of(_FUNCTION)
    assert module is not None
    for used in ("define internal void @one(", '@"two.x"(ptr %a)', "@table = ", "@llvm.cttz.i32(i32,", "#0 =", "!1 ="):
        assert used in module
    assert "three" not in module
    assert "!2" not in module


@pytest.mark.parametrize(
    ("old", "new"), [("i64 7", "i64 8"), ("i32 8", "i32 9"), ("nounwind", ""), ("i32 1}", "i32 2}")]
)
def test_functions_that_use_something_else_have_other_names(old: str, new: str) -> None:
    one, other = (Definitions(text).module_of(_FUNCTION) for text in (_OTHERS, _OTHERS.replace(old, new)))
    assert one is not None
    assert other is not None
    assert name_of(one, b"") != name_of(other, b"")
    assert name_of(one, b"") != name_of(one, b"1")


@pytest.mark.parametrize(
    ("old", "new"), [("private constant", "global"), ("@table =", "@tables ="), ('@"two.x"(ptr @t', '@"two"(ptr @t')]
)
def test_what_can_be_there_but_once_stays_in_the_kernel(old: str, new: str) -> None:
    assert Definitions(_OTHERS.replace(old, new)).module_of(_FUNCTION) is None


def test_unused_functions_are_left_out() -> None:
    left = Definitions(_OTHERS).without_unused(_OTHERS, ['  call void @"two.x"(ptr %x)'])
    assert '@"two.x"' in left
    assert "@one" not in left
    assert "@three" not in left


def test_what_the_rest_of_the_text_uses_stays() -> None:
    """The kernel's description names the function that runs its warps."""
    text = f"{_OTHERS}@code = global {{ ptr }} {{ ptr @one }}\n"
    left = Definitions(text).without_unused(text, ["  call void @vgx.0123(ptr %x)\n"])
    assert "@one(" in left
    assert '@"two.x"(ptr %a)' in left
    assert "@three(" not in left


def test_a_bundle_lacks_what_no_part_has() -> None:
    main = native.assemble_quickly(
        "declare void @vgx.there()\ndeclare void @vgx.not()\ndefine void @m() {\n"
        "  call void @vgx.there()\n  call void @vgx.not()\n  ret void\n}\n"
    )
    part = native.assemble_quickly("define void @vgx.there() {\n  ret void\n}\n")
    assert native.missing_symbols(native.bundle(main, {"vgx.there": part})) == ["vgx.not"]
    assert sorted(native.missing_symbols(main)) == ["vgx.not", "vgx.there"]
    assert native.bundle(main, {"a": part, "b": main}) != native.bundle(main, {"a": part})


def test_a_call_between_the_objects_of_a_bundle() -> None:
    main = native.assemble_quickly(
        "declare i32 @vgx.sum(i32)\ndefine i32 @m(i32 %x) {\n  %y = call i32 @vgx.sum(i32 %x)\n  ret i32 %y\n}\n"
    )
    part = native.assemble_quickly("define i32 @vgx.sum(i32 %x) {\n  %y = add i32 %x, 5\n  ret i32 %y\n}\n")
    loaded = native.LoadedObject(native.bundle(main, {"vgx.sum": part}))
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(loaded.address("m"))(37) == 42
