"""Every kernel of a test is compiled quickly (codegen/outline.py), and goes on in its whole code after some rounds.

A plugin of pytest gives all tests of this folder that form:

    python -m pytest -p tests.vgpusim.codegen.quickly tests/vgpusim/codegen [--quick-rounds 3]

A round is one call of a warp's function: until the warp ends or waits. Without rounds, kernels stay in quick code.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
from vgpusim.codegen import compile as compiler
from vgpusim.codegen.compile import CompiledKernel, compile_entry, compile_whole
from vgpusim.codegen.emit_code import CODE_SYMBOL, QUICK_SYMBOL
from vgpusim.codegen.loader import Loader, _Quick
from vgpusim.codegen.native import LoadedObject

from tests.vgpusim.codegen import harness

_WARP = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)


def compile_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile all kernels quickly, also small ones."""
    monkeypatch.setattr(compiler, "QUICK_LEAST_NBYTES", 0)
    monkeypatch.setitem(compile_entry.__kwdefaults__, "quick", True)


def refuse_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that LLVM refuses in this form fails; else it would be compiled whole."""

    def fail(error: Exception, *_: object) -> Exception:
        raise error

    monkeypatch.setattr(compiler, "_reported", fail)


class _Switch:
    """Takes the place of a kernel's warp function: the quick one for some rounds, then the whole one."""

    def __init__(self, quick: CompiledKernel, rounds: int) -> None:
        loaded = harness.LOADER._loaded[hashlib.sha256(quick.object_code).digest()]
        state = _Quick.from_address(loaded.object.address(QUICK_SYMBOL))
        self._whole = LoadedObject(compile_whole(quick).object_code)
        first = _WARP(state.warp)
        then = _WARP(ctypes.c_uint64.from_address(self._whole.address(CODE_SYMBOL)).value)
        self.done = 0  # rounds of this launch

        def warp(*arguments: int) -> int:
            self.done += 1
            return int((first if self.done <= rounds else then)(*arguments))

        self._warp = _WARP(warp)
        state.warp = ctypes.cast(self._warp, ctypes.c_void_p).value


class Switches:
    """What the harness compiles goes on in whole code after some rounds of each launch. The caller empties the
    harness's cache before and after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
        self._rounds = rounds
        self._switches: dict[bytes, _Switch] = {}
        self._compiled = harness._compiled
        monkeypatch.setattr(compiler, "QUICK_NS", 10**9)  # a byte: nothing is due by time
        monkeypatch.setattr(harness, "_compiled", self)
        monkeypatch.setattr(harness, "LOADER", Loader())  # loaded code keeps its switch, which ends with this object

    @property
    def switched(self) -> int:
        """How many kernels' last launch went on in whole code."""
        return sum(switch.done > self._rounds for switch in self._switches.values())

    def __len__(self) -> int:
        return len(self._switches)

    def cache_clear(self) -> None:
        self._compiled.cache_clear()

    def __call__(self, *arguments: Any) -> Any:
        compiled, address = self._compiled(*arguments)
        if compiled.whole:  # else it has nothing that could be made quickly
            switch = self._switches.get(compiled.object_code)
            if switch is None:
                switch = self._switches[compiled.object_code] = _Switch(compiled, self._rounds)
            switch.done = 0
        return compiled, address


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick-rounds", type=int, help="after which each kernel goes on in whole code")


@pytest.fixture(autouse=True)
def _all_quick(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Only as a plugin."""
    compile_all(monkeypatch)
    refuse_others(monkeypatch)
    rounds = request.config.getoption("--quick-rounds")
    harness._compiled.cache_clear()
    if rounds is not None:
        Switches(monkeypatch, rounds)
    yield
    harness._compiled.cache_clear()
