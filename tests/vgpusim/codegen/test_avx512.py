"""Kernels compiled for a processor with AVX-512, quickly, on any x86: LLVM accepts them. They are not run."""

from __future__ import annotations

import pytest
from vgpusim.codegen import compile as compiler
from vgpusim.codegen import native, shared_forms
from vgpusim.codegen.compile import compile_entry
from vgpusim.ptx.module import PtxModule

from tests.vgpusim.codegen import test_kernels

pytestmark = pytest.mark.skipif(not native.IS_X86, reason="code of x86")
_CPU = "sapphirerapids"


@pytest.fixture(autouse=True)
def has_avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = {}

    def machine(level: int) -> object:
        if level not in machines:
            target = native.llvm.Target.from_default_triple()
            machines[level] = target.create_target_machine(cpu=_CPU, features="", opt=level, jit=True)
        return machines[level]

    monkeypatch.setattr(native, "_machine", machine)
    monkeypatch.setattr(native, "cpu_name", lambda: _CPU)
    for question in ("has_wide_gathers", "has_masked_gathers", "has_own_rounding"):
        monkeypatch.setattr(native, question, lambda: True)
    monkeypatch.setattr(compiler, "QUICK_LEAST_NBYTES", 0)
    monkeypatch.setattr(shared_forms, "_objects", type(shared_forms._objects)())


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
