"""The guest libraries need only glibc, no newer than Ubuntu 22.04's, and no other library."""

import re
import subprocess
from pathlib import Path

import pytest

LIB = Path(__file__).resolve().parents[2] / "build/guest"
NEWEST_GLIBC = (2, 35)


LIBRARIES = {"libcuda": "cuInit", "libnvidia-ml": "nvmlInit_v2"}
PREFIXES = {"libcuda": ("cu",), "libnvidia-ml": ("nvml",)}

each_library = pytest.mark.parametrize("library", LIBRARIES)


def readelf(library: str, *options: str) -> str:
    command = ["readelf", "-W", *options, str(LIB / f"{library}.so.1")]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


@each_library
def test_needs_only_the_c_library(library: str) -> None:
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf(library, "-d")))
    assert "libc.so.6" in needed
    assert needed <= {"libc.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2"}


@each_library
def test_soname_is_the_drivers(library: str) -> None:
    assert re.findall(r"\(SONAME\).*\[(.+)\]", readelf(library, "-d")) == [f"{library}.so.1"]


@each_library
def test_glibc_symbol_versions_are_old_enough(library: str) -> None:
    versions = {
        tuple(map(int, found.split("."))) for found in re.findall(r"@GLIBC_(\d+\.\d+)", readelf(library, "--dyn-syms"))
    }
    assert versions
    assert max(versions) <= NEWEST_GLIBC


@each_library
def test_exports_only_the_drivers_names(library: str) -> None:
    symbols = [
        line.split() for line in readelf(library, "--dyn-syms").splitlines() if re.search(r"\b(GLOBAL|WEAK)\b", line)
    ]
    exported = {fields[7].split("@")[0] for fields in symbols if fields[6] != "UND"}
    assert LIBRARIES[library] in exported
    own = {"vgpuDeviceIsSimulated", "vgpuHostAlias", "vgpuProfiling"} if library == "libcuda" else set()
    assert {name for name in exported if not name.startswith((*PREFIXES[library], library))} == own


@each_library
def test_both_other_names_are_links_to_one_file(library: str) -> None:
    real = (LIB / f"{library}.so.1").resolve()
    assert (LIB / f"{library}.so").resolve() == real
    assert re.fullmatch(rf"{library}\.so\.\d+\.\d+\.\d+", real.name)
