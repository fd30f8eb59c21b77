"""Symbols, version tags and device code: real files, and damaged ones."""

from __future__ import annotations

import contextlib
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vgpu_guest import device_code
from vgpu_guest.elf import ElfError
from vgpu_guest.elf_symbol import read_called, read_functions, read_symbols

from tests.conftest import ROOT
from tests.guest.elf_file import compile_c, compile_library

FATBIN = ROOT / "tests/vgpusim/image/data/none.fatbin"
SECTION = f'__asm__(".section .nv_fatbin,\\"a\\"\\n.incbin \\"{FATBIN}\\"\\n.previous");'


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libv.so, which defines f@V_1 and carries device code, and the program p, which imports f."""
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


HIDDEN = '__attribute__((visibility("hidden"))) int'


@pytest.fixture(scope="module")
def static(files: Path) -> Path:
    """A program that calls cudaOne from a static library that also defines cudaTwo."""
    source = f"{HIDDEN} cudaOne(void) {{ return 1; }} {HIDDEN} cudaTwo(void) {{ return 2; }}"
    library = compile_c(files / "library.o", source, "-c")
    main = "int cudaOne(void); static int cudaOwn(void) { return cudaOne(); } int main(void) { return cudaOwn(); }"
    return compile_c(files / "static", main, "-O0", "-fuse-ld=bfd", "-x", "none", str(library))


def test_what_a_program_calls_of_a_static_library(static: Path, files: Path) -> None:
    called = read_called(static, re.compile("cuda"))
    assert called is not None
    assert "cudaOne" in called
    assert "cudaTwo" not in called
    subprocess.run(["strip", "-o", files / "stripped", static], check=True, timeout=60)
    assert read_called(files / "stripped", re.compile("cuda")) is None
    assert read_called(files / "p", re.compile("cuda")) is None  # no hidden symbols: other linker or shared library


@pytest.mark.parametrize("option", ["-pie", "-no-pie"])
def test_the_function_at_a_distance_from_the_start(files: Path, option: str) -> None:
    """What dladdr calls the start of a program, for static functions as well; stripped programs name none."""
    source = """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        static int alone(void) { return 5; }
        int main(void) {
          Dl_info info;
          dladdr((void *)main, &info);
          printf("%td %td", (char *)main - (char *)info.dli_fbase, (char *)alone - (char *)info.dli_fbase);
          return 0;
        }"""
    program = compile_c(
        files / f"at{option}", source, "-O0", option, *(["-fPIE"] if option == "-pie" else ["-fno-pie"])
    )
    done = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60)
    main, alone = map(int, done.stdout.split())
    assert read_functions(program, {main, main + 4, alone + 1, 1 << 40}) == {
        main: "main", main + 4: "main", alone + 1: "alone"
    }  # fmt: skip
    subprocess.run(["strip", "-o", files / "stripped-too", program], check=True, timeout=60)
    assert "alone" not in read_functions(files / "stripped-too", {alone}).values()


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
def test_damaged_files_raise_only_elf_errors(
    files: Path, static: Path, changes: list[tuple[int, bytes]], cut: int
) -> None:
    for path in (files / "libv.so", static):
        _damage(path, files / "damaged", changes, cut)


def _damage(path: Path, damaged: Path, changes: list[tuple[int, bytes]], cut: int) -> None:
    data = bytearray(path.read_bytes())
    for at, change in changes:
        data[at : at + len(change)] = change
    damaged.write_bytes(data[: max(1, len(data) - cut)])
    with contextlib.suppress(ElfError):
        read_symbols(damaged)
    with contextlib.suppress(ElfError):
        read_called(damaged, re.compile("cuda"))
    device_code.read(damaged, (9, 0), True)
