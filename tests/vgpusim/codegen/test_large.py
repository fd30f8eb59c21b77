"""Kernels compiled as large ones, whose registers stay in the frame and are not saved at barriers: same results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from vgpusim.codegen import compile as compiler
from vgpusim.codegen import emit_control, native
from vgpusim.ptx.module import PtxModule

from tests.vgpusim.codegen import harness, test_cooperative, test_kernels, test_waiting


@pytest.fixture(params=["sm75", "sm90"])
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(emit_control, "_LARGE_NBYTES", 0)
    harness._compiled.cache_clear()
    yield
    harness._compiled.cache_clear()


def test_tiles_and_histograms(target: str) -> None:
    text = (test_kernels.KERNELS / f"basic_{target}.ptx").read_text()
    test_kernels.test_tiled_matmul(text, np.random.default_rng(7), 16)
    test_kernels.test_histogram(text, np.random.default_rng(7), "hist_shared", 50)
    test_waiting.test_tiles_of_several_warps(target)


@pytest.mark.parametrize(
    "check", [test_cooperative.test_a_cta_waits_for_a_higher_one, test_cooperative.test_a_lock_of_all_lanes]
)
def test_resident_ctas(target: str, check: Callable[[str], None]) -> None:
    check((test_kernels.KERNELS / f"grid_{target}.ptx").read_text())


def test_a_chain_of_warps() -> None:
    test_waiting.test_a_chain_of_warps_from_last_to_first("ld.volatile.shared.u32 %v, [slot];")


@pytest.mark.parametrize("kernels", ["basic", "grid"])
def test_accesses_claim_no_more_alignment_than_places_have(target: str, kernels: str) -> None:
    """LLVM merges adjacent accesses by claimed alignment; on x86 a false claim ended xgboost with error 700."""
    module = PtxModule.parse((test_kernels.KERNELS / f"{kernels}_{target}.ptx").read_text())
    checked = 0
    for name in module.entries:
        text = compiler.lower(module, name, (64, 1, 1))[0]
        places = dict(
            re.findall(r"^ *(%\S+|%\"[^\"]+\") = getelementptr i8, ptr %frame, i64 (\d+)$", text, re.MULTILINE)
        )
        for place, alignment in re.findall(r"ptr (%\"[^\"]+\"|%\S+), align (\d+)$", text, re.MULTILINE):
            if place in places:
                assert int(places[place]) % int(alignment) == 0, (name, place)
                checked += 1
    assert checked > 10


BARRIERS, REGISTERS = 40, 300


def _many_barriers() -> str:
    """All registers are live across all barriers: saving and restoring them would be nearly all of the code."""
    define = "".join(f"add.u32 %r{i}, %r0, {i};\n" for i in range(1, REGISTERS))
    use = "".join(f"xor.b32 %r0, %r0, %r{i};\n" for i in range(1, REGISTERS))
    step = "bar.sync 0;\n" + "add.u32 %r1, %r1, %r2;\n"
    return (
        harness.HEADER + ".visible .entry k(.param .u64 out) {\n"
        f".reg .u32 %r<{REGISTERS}>; .reg .u64 %d<3>;\nmov.u32 %r0, %tid.x;\n"
        f"{define}{step * BARRIERS}{use}"
        "ld.param.u64 %d0, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %d1, %r1, 4; add.u64 %d2, %d0, %d1;\n"
        "st.global.u32 [%d2], %r0; ret; }\n"
    )


def test_text_does_not_grow_with_barriers_times_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    module = PtxModule.parse(_many_barriers())
    monkeypatch.setattr(emit_control, "_LARGE_NBYTES", 600_000)
    text = compiler.lower(module, "k", (64, 1, 1))[0]
    assert len(text) < 300_000
    assert len(re.findall(r"ret i32 \d", text)) == BARRIERS + 1
    assert native.assemble(text)


@pytest.mark.skipif(not native.IS_X86, reason="the bytes are of x86")
def test_frames_touch_each_of_their_pages() -> None:
    """A frame larger than the thread's stack must hit the stack's guard page: one of 22 MB (xgboost's reduction by key,
    with copied registers) went past the guard page into another thread's memory. `permute` has a frame over a page."""
    text = f"""{harness.HEADER}.visible .entry k(.param .u64 out) {{ .reg .b32 %r<4>; .reg .b64 %d<3>;
    ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 21; shfl.sync.idx.b32 %r2, %r0, %r1, 31, -1;
    mul.wide.u32 %d1, %r0, 4; add.u64 %d2, %d0, %d1; st.global.u32 [%d2], %r2; ret; }}"""
    lowered = compiler.lower(PtxModule.parse(text), "k", (64, 1, 1))[0]
    assert '"probe-stack"="inline-asm"' in lowered.partition("attributes #0")[2]
    functions = re.findall(r"^define .*$", lowered, re.MULTILINE)
    assert all("#0" in line or "@refuse" in line for line in functions)
    probe = bytes.fromhex("48c7042400000000")  # movq $0, (%rsp)
    assert probe in native.assemble(lowered)
    assert probe not in native.assemble(lowered.replace('"probe-stack"="inline-asm"', ""))
