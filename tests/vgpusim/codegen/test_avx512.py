"""Kernels compiled for a processor with AVX-512, quickly, on any x86: LLVM accepts them. They are not run."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
from vgpusim.codegen import compile as compiler
from vgpusim.codegen import native, shared_forms
from vgpusim.codegen.compile import compile_entry
from vgpusim.ptx.module import PtxModule

from tests.vgpusim.codegen import test_kernels

pytestmark = pytest.mark.skipif(not native.IS_X86, reason="code of x86")
_CPU = "sapphirerapids"


class _Features(dict[str, bool]):
    """As llvmlite's; the processor's name implies them all."""

    def flatten(self) -> str:
        return ""


def _forget() -> None:
    """What native.py knows of the processor."""
    for known in vars(native).values():
        if hasattr(known, "cache_clear"):
            known.cache_clear()


@pytest.fixture(autouse=True)
def has_avx512(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All that native.py says of the processor it asks LLVM for, so no answer of it is named here."""
    monkeypatch.setattr(native.llvm, "get_host_cpu_name", lambda: _CPU)
    monkeypatch.setattr(native.llvm, "get_host_cpu_features", lambda: _Features(avx512f=True))
    monkeypatch.setattr(native, "_machines", {})
    monkeypatch.setattr(compiler, "QUICK_LEAST_NBYTES", 0)
    monkeypatch.setattr(shared_forms, "_objects", type(shared_forms._objects)())
    _forget()
    yield
    _forget()


def test_each_answer_is_of_that_processor() -> None:
    """One that native.py gave without LLVM would be this machine's."""
    assert native.cpu_name().startswith(_CPU)
    assert native.has_wide_gathers()
    assert not native.has_few_registers()
    asked = {name for name, known in vars(native).items() if hasattr(known, "cache_clear") and name != "cpu_name"}
    for name in asked:
        source = inspect.getsource(getattr(native, name))
        assert "llvm.get_host_cpu_" in source or any(f"{other}()" in source for other in asked - {name}), name


@pytest.mark.parametrize("kernels", ["basic", "grid"])
def test_llvm_accepts_it(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(error: Exception, *_: object) -> Exception:
        raise error

    monkeypatch.setattr(compiler, "_reported", fail)  # what cannot be compiled quickly would be compiled whole
    module = PtxModule.parse((test_kernels.KERNELS / f"{kernels}_sm90.ptx").read_text())
    for name in module.entries:
        quick = compile_entry(module, name, module.entry(name).required_block or (64, 1, 1), quick=True)
        assert quick.whole, name
        assert quick.object_code.count(b"\x62") > 9, name  # this byte begins AVX-512's instructions
