"""An internal error of the compiler is reported as such, with the instruction and a dump to attach."""

from __future__ import annotations

from pathlib import Path

import pytest
from vgpusim.codegen import dump
from vgpusim.codegen.compile import DiskCache, PtxModule, compile_entry
from vgpusim.codegen.emitter import EMITTERS, Emitter
from vgpusim.ptx import ir
from vgpusim.ptx.error import InternalError

from tests.vgpusim.codegen.harness import HEADER

TEXT = f"{HEADER}.visible .entry k()\n{{\n.reg .u32 %r<4>;\npopc.b32 %r1, %r2;\nret;\n}}\n"


def _broken(e: Emitter, ins: ir.Instruction) -> None:
    raise {"popc": KeyError("lost")}[ins.opcode]


def test_internal_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names kernel, line and instruction; the dump is PTX that reproduces the error, with the traceback."""
    monkeypatch.setitem(EMITTERS, "popc", _broken)
    with pytest.raises(InternalError, match=r"k: internal compiler error at line 7, `popc.b32`: KeyError") as caught:
        compile_entry(PtxModule.parse(TEXT), "k", (32, 1, 1), cache=DiskCache(tmp_path))
    assert caught.value.result == 999
    (path,) = (tmp_path / "internal-errors").iterdir()
    assert str(path) in str(caught.value)
    written = path.read_text()
    assert "_broken" in written
    assert "KeyError: 'lost'" in written
    assert "block (32, 1, 1)" in written
    assert PtxModule.parse(written).entries == ["k"]


def test_error_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a cache there is no dump, and the message names no path."""

    def fails(graph: object) -> None:
        raise AssertionError("broken")

    monkeypatch.setattr("vgpusim.codegen.liveness.compute", fails)
    with pytest.raises(InternalError, match=r"k: internal compiler error at pass liveness: AssertionError: broken$"):
        compile_entry(PtxModule.parse(TEXT), "k", (32, 1, 1))


def test_dumps_are_few(tmp_path: Path) -> None:
    paths = [dump.write(tmp_path, [str(i)], [TEXT], ValueError()) for i in range(20)]
    assert sum(path is not None for path in paths) == len(list((tmp_path / "internal-errors").iterdir())) == 8
    assert dump.write(tmp_path, ["0"], [TEXT], ValueError()) == paths[0]
