"""Which CUDA runtime a program gets. Whether it finds one is checked against the dynamic linker itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from vgpu_guest.cudart import FOLDERS, find_runtimes
from vgpu_guest.libraries import LIBRARIES
from vgpud.cli.guest_libraries import Libraries, give_libraries

from tests.conftest import Run
from tests.guest.elf_file import compile_c, compile_library
from tests.patience import PATIENCE_S

MAIN = "extern const char *who(void); int puts(const char *); int main(void) { puts(who()); return 0; }"
SONAME = "libcudart.so.12"


@pytest.fixture(autouse=True)
def no_loader_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore the loader cache: this machine's own runtimes in it would be found for every program."""
    monkeypatch.setattr("vgpu_guest.cudart._LDCONFIG", "/nonexistent/ldconfig")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    source = 'const char *who(void) { return "theirs"; }'
    return compile_library(tmp_path / "theirs" / SONAME, source=source)


def find_runtime(program: str, environment: dict[str, str], soname: str = SONAME) -> Path | None:
    return find_runtimes(program, environment)[soname]


def program(tmp_path: Path, library: Path, *flags: str) -> Path:
    return compile_c(tmp_path / "bin/p", MAIN, "-x", "none", str(library), *flags)


def runs(binary: Path, **environment: str) -> bool:
    return subprocess.run([binary], env=environment, capture_output=True, timeout=PATIENCE_S).returncode == 0


def test_linked_and_found_by_runpath(tmp_path: Path, theirs: Path) -> None:
    binary = program(tmp_path, theirs, "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../theirs")
    assert runs(binary)
    found = find_runtime(str(binary), {})
    assert found is not None
    assert found.resolve() == theirs


def test_linked_and_found_by_the_library_path(tmp_path: Path, theirs: Path) -> None:
    binary = program(tmp_path, theirs)
    environment = {"LD_LIBRARY_PATH": f"/nowhere:{theirs.parent}"}
    assert runs(binary, **environment)
    assert find_runtime(str(binary), environment) == theirs


def test_linked_and_not_found(tmp_path: Path, theirs: Path) -> None:
    binary = program(tmp_path, theirs)
    assert not runs(binary)
    assert find_runtime(str(binary), {}) is None


def test_another_major_does_not_help(tmp_path: Path, theirs: Path) -> None:
    binary = program(tmp_path, theirs)
    other = compile_library(tmp_path / "other/libcudart.so.13")
    environment = {"LD_LIBRARY_PATH": str(other.parent)}
    assert not runs(binary, **environment)
    assert find_runtime(str(binary), environment) is None


def test_a_file_that_is_no_library_is_not_found(tmp_path: Path, theirs: Path) -> None:
    binary = program(tmp_path, theirs)
    theirs.write_text("not an ELF file")
    assert find_runtime(str(binary), {"LD_LIBRARY_PATH": str(theirs.parent)}) is None


@pytest.mark.parametrize("soname", FOLDERS)
def test_an_interpreter_with_nvidias_package_has_it(tmp_path: Path, soname: str) -> None:
    package = compile_library(tmp_path / "venv/lib/python3.11/site-packages/nvidia/cuda_runtime/lib" / soname)
    interpreter = tmp_path / "venv/bin/python"
    interpreter.parent.mkdir()
    interpreter.symlink_to(os.path.realpath(sys.executable))
    assert find_runtime(str(interpreter), {}, soname) == package


@pytest.mark.parametrize(
    "site",
    ["usr/local/lib/python3.12/dist-packages", "usr/lib/python3/dist-packages", ".local/lib/python3.12/site-packages"],
)
def test_a_systems_interpreter_has_what_pip_installs(tmp_path: Path, site: str) -> None:
    """Neither Debian's pip nor `pip install --user` installs into the interpreter's site-packages."""
    package = compile_library(tmp_path / site / "nvidia/cu13/lib" / SONAME)
    interpreter = tmp_path / "usr/bin/python3"
    interpreter.parent.mkdir(parents=True, exist_ok=True)
    interpreter.symlink_to("/bin/sh")
    assert find_runtime(str(interpreter), {"HOME": str(tmp_path)}) == package


def test_an_interpreter_without_has_none(tmp_path: Path) -> None:
    interpreter = tmp_path / "venv/bin/python"
    interpreter.parent.mkdir(parents=True)
    interpreter.symlink_to("/bin/sh")
    assert find_runtime(str(interpreter), {}) is None


def test_the_loaders_cache_counts(tmp_path: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = tmp_path / "ldconfig"
    listing.write_text(f"#!/bin/sh\necho '\t{SONAME} (libc6,x86-64) => {theirs}'\n")
    listing.chmod(0o755)
    monkeypatch.setattr("vgpu_guest.cudart._LDCONFIG", str(listing))
    assert find_runtime("/bin/sh", {}) == theirs


def which(vgpu_run: Run, *options: str) -> tuple[str, str]:
    """The libcudart.so.12 that a program loads under `vgpu run` (a path or `none`), and what vgpu logs."""
    code = (
        "import ctypes\ntry: ctypes.CDLL('libcudart.so.12')\nexcept OSError: print('none')\n"
        "else: print(next(l.split()[-1] for l in open('/proc/self/maps') if 'libcudart' in l))"
    )
    environment = {"VGPU_LOG": "info", "VGPU_LOG_FILE": os.devnull}
    result = vgpu_run([sys.executable, "-c", code], env=environment, options=options)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip(), result.stderr


@pytest.mark.parametrize("name", ["vgpu", "ours"])  # `ours`: the former name
def test_run_gives_vgpus_and_says_so(vgpu_run: Run, name: str) -> None:
    file, said = which(vgpu_run, "--cudart", name)
    assert file == str(LIBRARIES / "cudart/12/libcudart.so.12")
    assert "libcudart.so.12 is vgpu's" in said


@pytest.mark.parametrize("name", ["program", "theirs"])  # `theirs`: the former name
def test_run_gives_none_of_vgpus_if_told_so(vgpu_run: Run, name: str) -> None:
    file, said = which(vgpu_run, "--cudart", name)
    assert not file.startswith(str(LIBRARIES))
    assert "libcudart.so.12 is not given by vgpu" in said


@pytest.mark.parametrize("has_tensorflow", [True, False])
def test_tensorflow_is_given_the_folders_that_its_own_search_leaves_out(tmp_path: Path, has_tensorflow: bool) -> None:
    site = tmp_path / "venv/lib/python3.11/site-packages"
    (site / "nvidia/cusolver/lib").mkdir(parents=True)
    if has_tensorflow:
        (site / "tensorflow").mkdir()
    interpreter = tmp_path / "venv/bin/python"
    interpreter.parent.mkdir()
    interpreter.symlink_to(os.path.realpath(sys.executable))
    environment = {"VGPU_ENDPOINT": f"unix:{tmp_path}/absent.sock", "LD_LIBRARY_PATH": "/own"}
    give_libraries(environment, str(interpreter), None, Libraries())
    entries = environment["LD_LIBRARY_PATH"].split(":")
    assert entries[0] == str(LIBRARIES)
    assert (entries[-1] == str(site / "nvidia/cusolver/lib")) == has_tensorflow
