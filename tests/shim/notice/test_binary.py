"""The notice as a file: dependencies, exported names, and what loading it does (cases L05, L11, L14, G07)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.shim.notice.conftest import ROOT, Installed, Machine

LIBRARY = ROOT / "build/guest/notice/libvgpu-notice.so"
NEXT = "/usr/lib/vgpu/notice/next/libcuda.so.1"
NEWEST_GLIBC = (2, 35)
Loader = Callable[[str], list[str | Path]]


def readelf(*options: str, file: Path = LIBRARY) -> str:
    return subprocess.run(["readelf", "-W", *options, str(file)], capture_output=True, check=True, text=True).stdout


def test_is_libcuda_and_stands_before_the_next_one() -> None:
    """libvgpu-next.so, the only dependency besides libc, names the driver's path as an auxiliary filter (optional)."""
    dynamic = readelf("-d")
    assert re.findall(r"\(SONAME\).*\[(.+)\]", dynamic) == ["libcuda.so.1"]
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    assert needed[0] == "libvgpu-next.so"
    assert set(needed[1:]) == {"libc.so.6"}
    assert "RPATH" not in dynamic
    assert re.findall(r"\(RUNPATH\).*\[(.+)\]", dynamic) == ["$ORIGIN"]
    stub = readelf("-d", file=LIBRARY.with_name("libvgpu-next.so"))
    assert re.findall(r"\(AUXILIARY\).*\[(.+)\]", stub) == [NEXT]
    assert "NEEDED" not in stub


def test_exports_three_names_and_wraps_no_libc_function() -> None:
    symbols = [line.split() for line in readelf("--dyn-syms").splitlines() if re.search(r"\b(GLOBAL|WEAK)\b", line)]
    exported = {fields[7] for fields in symbols if fields[6] != "UND"}
    assert exported == {"cuInit", "cuGetProcAddress", "cuGetProcAddress_v2"}


def test_l11_no_private_glibc_names_and_none_that_is_new() -> None:
    symbols = readelf("--dyn-syms")
    assert "GLIBC_PRIVATE" not in symbols
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"@GLIBC_(\d+\.\d+)", symbols)}
    assert max(versions) <= NEWEST_GLIBC


def test_l14_nothing_happens_when_it_is_loaded() -> None:
    """The one entry of the init and of the fini array is the compiler's own (frame_dummy)."""
    sizes = dict(re.findall(r"\((INIT_ARRAYSZ|FINI_ARRAYSZ)\)\s+(\d+)", readelf("-d")))
    assert sizes == {"INIT_ARRAYSZ": "8", "FINI_ARRAYSZ": "8"}


def test_g07_a_program_of_another_class_passes_it_by(installed: Installed, machine: Machine, tmp_path: Path) -> None:
    """The loader skips a library of the wrong ELF class or machine in a search path: here a copy of the notice with a
    changed ELF header, in front of the driver.
    """
    for name, offset, value in (("class", 4, b"\x01"), ("architecture", 18, b"\xb7\x00")):
        foreign = tmp_path / name
        foreign.mkdir()
        content = bytearray(LIBRARY.read_bytes())
        content[offset : offset + len(value)] = value
        (foreign / "libcuda.so.1").write_bytes(content)
        program = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
        done = machine.run(["python3", "-c", program], Path(f"{foreign}:{installed.driver.parent}"), VGT_RESULT="35")
        assert (done.returncode, done.stdout, done.stderr) == (0, "35\n", ""), name
