"""The libraries as files: names, version tags, dependencies, and that loading a library has no side effects."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cudart.runtimes import MAJORS, Major

NEWEST_GLIBC = (2, 35)
each = pytest.mark.parametrize("major", MAJORS, ids=lambda major: str(major.number))


def output(*command: str | Path) -> str:
    return subprocess.run([str(c) for c in command], capture_output=True, check=True, text=True, timeout=60).stdout


def dynamic_symbols(library: Path) -> list[list[str]]:
    """Fields of `readelf --dyn-syms` for each global symbol that the library defines."""
    lines = [line.split() for line in output("readelf", "-W", "--dyn-syms", library).splitlines()]
    found = [fields for fields in lines if len(fields) == 8 and fields[4] in ("GLOBAL", "WEAK")]
    return [fields for fields in found if fields[6] != "UND"]


@each
def test_L03_every_name_of_the_major_is_exported_and_no_other(major: Major) -> None:
    names = {fields[7].split("@")[0] for fields in dynamic_symbols(major.ours)} - {major.soname}
    assert names == major.names()
    assert len(names) > 390


@each
def test_L02_every_name_carries_the_version_tag_of_the_major(major: Major) -> None:
    tagged = [fields[7] for fields in dynamic_symbols(major.ours) if fields[7] != major.soname]
    assert [name for name in tagged if not name.endswith(f"@@{major.soname}")] == []


@each
def test_L04_soname(major: Major) -> None:
    assert re.findall(r"\(SONAME\).*\[(.+)\]", output("readelf", "-W", "-d", major.ours)) == [major.soname]


@each
def test_L05_needs_only_the_c_library_and_no_symbol_is_missing(major: Major) -> None:
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-W", "-d", major.ours)))
    assert "libc.so.6" in needed
    assert needed <= {"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"}
    checked = subprocess.run(["ldd", "-r", str(major.ours)], capture_output=True, text=True, timeout=60)
    assert "undefined symbol" not in checked.stdout + checked.stderr


@each
def test_L11_glibc_symbols_are_public_and_old_enough(major: Major) -> None:
    listing = output("readelf", "-W", "--dyn-syms", major.ours)
    assert "GLIBC_PRIVATE" not in listing
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"@GLIBC_(\d+\.\d+)", listing)}
    assert versions
    assert max(versions) <= NEWEST_GLIBC


ALONE = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_LOCAL)
assert not any("libcuda.so" in line for line in open("/proc/self/maps")), "loading alone opened the driver"
version = ctypes.c_int(-1)
assert library.cudaRuntimeGetVersion(ctypes.byref(version)) == 0
print(version.value)
"""


@each
def test_L05_L14_opens_alone_with_every_symbol_bound_and_does_nothing(major: Major) -> None:
    result = subprocess.run(
        [sys.executable, "-c", ALONE, str(major.ours)], capture_output=True, text=True, timeout=60, env={}
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert int(result.stdout) // 1000 == major.number


@pytest.mark.client
@pytest.mark.timeout(700)
@each
def test_L03_the_committed_list_is_that_of_nvidias_library(major: Major) -> None:
    symbols = dynamic_symbols(major.theirs())
    assert {fields[7].split("@")[0] for fields in symbols} - {major.soname} == major.names()
    assert {fields[7].split("@@")[1] for fields in symbols if "@@" in fields[7]} == {major.soname}


@pytest.mark.client
def test_L03_an_older_13_has_no_name_that_ours_lacks() -> None:
    thirteen = MAJORS[2]
    older = Path(thirteen.include()).parent / "lib" / thirteen.soname
    assert {fields[7].split("@")[0] for fields in dynamic_symbols(older)} - {thirteen.soname} <= thirteen.names()
