"""Symbols, version tags and device code: real files, and damaged ones."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vgpu_guest import device_code
from vgpu_guest.elf import ElfError
from vgpu_guest.elf_symbol import read_symbols

from tests.conftest import ROOT
from tests.guest.elf_file import compile_c, compile_library

FATBIN = ROOT / "tests/vgpusim/image/data/none.fatbin"
SECTION = f'__asm__(".section .nv_fatbin,\\"a\\"\\n.incbin \\"{FATBIN}\\"\\n.previous");'


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libv.so, which defines f@V_1 and carries device code, and p, which wants it."""
    folder = tmp_path_factory.mktemp("symbols")
    (folder / "map").write_text("V_1 { global: f; local: *; };")
    source = f"{SECTION} int f(void) {{ return 1; }} int hidden(void) {{ return 2; }}"
    library = compile_library(folder / "libv.so", f"-Wl,--version-script={folder}/map", source=source)
    compile_c(folder / "p", "int f(void); int main(void) { return f(); }", "-x", "none", str(library))
    return folder


def test_what_a_library_defines(files: Path) -> None:
    symbols = read_symbols(files / "libv.so")
    assert "f" in symbols.defined
    assert "hidden" not in symbols.defined
    assert symbols.tags == {"V_1"}


def test_what_a_program_wants_with_its_tag(files: Path) -> None:
    assert read_symbols(files / "p").wanted["f"] == "V_1"


def test_our_library_defines_what_it_exports() -> None:
    symbols = read_symbols(ROOT / "build/guest/libcuda.so.1")
    assert {"cuInit", "cuGetProcAddress_v2"} <= symbols.defined


def test_device_code(files: Path) -> None:
    code = device_code.read(files / "libv.so", (9, 0), False)
    assert (code.containers, code.usable, code.damaged) == (1, 1, 0)
    assert code.kinds["PTX sm_75"] == 1
    assert device_code.read(files / "p", (9, 0), False).containers == 0


@given(
    st.lists(st.tuples(st.integers(0, 30000), st.binary(min_size=1, max_size=8)), min_size=1, max_size=8),
    st.integers(0, 20000),
)
@settings(max_examples=200, deadline=None)
def test_damaged_files_raise_only_elf_errors(files: Path, changes: list[tuple[int, bytes]], cut: int) -> None:
    data = bytearray((files / "libv.so").read_bytes())
    for at, change in changes:
        data[at : at + len(change)] = change
    damaged = files / "damaged"
    damaged.write_bytes(data[: max(1, len(data) - cut)])
    with contextlib.suppress(ElfError):
        read_symbols(damaged)
    device_code.read(damaged, (9, 0), True)
