"""The ELF reader: real files, and damaged ones."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vgpu_guest.elf import ElfError, read_dynamic

from tests.guest.elf_file import compile_c, compile_library

MAIN = "int main(void) { return 0; }"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("elf")
    return compile_c(directory / "p", MAIN, "-Wl,--disable-new-dtags,-rpath,/one:$ORIGIN/two")


def test_rpath(program):
    dynamic = read_dynamic(program)
    assert dynamic.is_dynamic
    assert dynamic.rpath == ("/one", "$ORIGIN/two")
    assert dynamic.runpath == ()
    assert "libc.so.6" in dynamic.needed


def test_runpath(tmp_path):
    dynamic = read_dynamic(compile_c(tmp_path / "p", MAIN, "-Wl,--enable-new-dtags,-rpath,/one"))
    assert (dynamic.rpath, dynamic.runpath) == ((), ("/one",))


def test_a_static_program(tmp_path):
    assert not read_dynamic(compile_c(tmp_path / "p", MAIN, "-static")).is_dynamic


def test_this_python_and_a_library(tmp_path):
    assert read_dynamic(Path(sys.executable)).is_dynamic
    assert not read_dynamic(compile_library(tmp_path / "liba.so")).is_dynamic


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01" + b"\0" * 100, b"\xff" * 1000])
def test_other_files(tmp_path, data):
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(ElfError):
        read_dynamic(tmp_path / "f")


@given(
    st.lists(st.tuples(st.integers(0, 4000), st.binary(min_size=1, max_size=8)), min_size=1, max_size=8),
    st.integers(0, 20000),
)
@settings(max_examples=200, deadline=None)
def test_damaged_files_raise_only_elf_errors(program, changes, cut):
    data = bytearray(program.read_bytes())
    for at, change in changes:
        data[at : at + len(change)] = change
    damaged = program.with_name("damaged")
    damaged.write_bytes(data[: max(1, len(data) - cut)])
    with contextlib.suppress(ElfError):
        read_dynamic(damaged)
