"""What the guest library demands of a guest: glibc as old as Ubuntu 22.04's, and no other library."""

import re
import subprocess
from pathlib import Path

LIB = Path(__file__).resolve().parents[2] / "daemon/vgpud/_lib"
NEWEST_GLIBC = (2, 35)


def readelf(*options: str) -> str:
    command = ["readelf", "-W", *options, str(LIB / "libcuda.so.1")]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def test_needs_only_the_c_library() -> None:
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d")))
    assert "libc.so.6" in needed
    assert needed <= {"libc.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2"}


def test_soname_is_the_drivers() -> None:
    assert re.findall(r"\(SONAME\).*\[(.+)\]", readelf("-d")) == ["libcuda.so.1"]


def test_glibc_symbol_versions_are_old_enough() -> None:
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"@GLIBC_(\d+\.\d+)", readelf("--dyn-syms"))}
    assert versions
    assert max(versions) <= NEWEST_GLIBC


def test_exports_only_the_drivers_names() -> None:
    symbols = [line.split() for line in readelf("--dyn-syms").splitlines() if re.search(r"\b(GLOBAL|WEAK)\b", line)]
    exported = {fields[7].split("@")[0] for fields in symbols if fields[6] != "UND"}
    assert "cuInit" in exported
    assert {name for name in exported if not name.startswith(("cu", "libcuda"))} == set()


def test_both_other_names_are_links_to_one_file() -> None:
    real = (LIB / "libcuda.so.1").resolve()
    assert (LIB / "libcuda.so").resolve() == real
    assert re.fullmatch(r"libcuda\.so\.\d+\.\d+\.\d+", real.name)
