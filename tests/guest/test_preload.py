"""Cases in which LD_LIBRARY_PATH does not take precedence. Each is checked against the dynamic linker itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from vgpu_guest.preload import resolve_program, winning_rpath

from tests.guest.elf_file import compile_c, compile_library
from tests.patience import PATIENCE_S

MAIN = """
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  const char *(*who)(void) = library ? (const char *(*)(void))dlsym(library, "who") : 0;
  puts(who ? who() : "none");
  return 0;
}
"""


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A directory with a libcuda that is not vgpu's."""
    source = 'const char *who(void) { return "other"; }'
    return compile_library(tmp_path / "other/libcuda.so.1", source=source).parent


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    return compile_library(tmp_path / "ours/libcuda.so.1", source='const char *who(void) { return "ours"; }').parent


def loaded(program: Path, ours: Path) -> str:
    environment = os.environ | {"LD_LIBRARY_PATH": str(ours)}
    return subprocess.run(
        [program], env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    ).stdout.strip()


def test_rpath_wins(tmp_path, other, ours):
    program = compile_c(tmp_path / "bin/p", MAIN, "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../other")
    assert loaded(program, ours) == "other"
    assert winning_rpath(program).resolve() == other / "libcuda.so.1"


def test_runpath_does_not(tmp_path, other, ours):
    program = compile_c(tmp_path / "bin/p", MAIN, f"-Wl,--enable-new-dtags,-rpath,{other}")
    assert loaded(program, ours) == "ours"
    assert winning_rpath(program) is None


def test_rpath_elsewhere_does_not(tmp_path, ours):
    program = compile_c(tmp_path / "bin/p", MAIN, f"-Wl,--disable-new-dtags,-rpath,{tmp_path}")
    assert loaded(program, ours) == "ours"
    assert winning_rpath(program) is None


def test_rpath_of_a_library_the_program_needs(tmp_path, other, ours):
    source = MAIN.replace("int main", "int probe")
    library = compile_library(tmp_path / "lib/libp.so", "-Wl,--disable-new-dtags,-rpath," + str(other), source=source)
    program = compile_c(
        tmp_path / "bin/p",
        "int probe(void); int main(void) { return probe(); }",
        "-L" + str(library.parent),
        "-lp",
        "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../lib",
    )
    assert loaded(program, ours) == "other"
    assert winning_rpath(program).resolve() == other / "libcuda.so.1"


def test_scripts_are_followed_to_their_interpreter(tmp_path):
    script = tmp_path / "s"
    for first in (f"#!{sys.executable} -x", f"#!/usr/bin/env -S {sys.executable}"):
        script.write_text(first + "\n")
        script.chmod(0o755)
        assert resolve_program(str(script), "/usr/bin") == Path(sys.executable)
    script.write_text("#!\n")
    assert resolve_program(str(script), "/usr/bin") is None
    script.write_text(f"#!{script}\n")
    assert resolve_program(str(script), "/usr/bin") is None
    assert resolve_program("no-such-program", "/usr/bin") is None


def test_unreadable_files_count_as_none(tmp_path):
    (tmp_path / "p").write_bytes(b"junk")
    assert winning_rpath(tmp_path / "p") is None
    assert winning_rpath(tmp_path / "absent") is None
