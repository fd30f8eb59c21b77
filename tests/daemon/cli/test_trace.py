"""`vgpu run --trace`: sums by function, and what the library logs for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from vgpud.cli.trace import add_up, format_json, format_summary, read, traced

from tests.daemon.running import ENVIRONMENT
from tests.guest.doctor.tree import LIB
from tests.guest.elf_file import compile_c
from tests.patience import PATIENCE_S

LINES = """\
vgpu[7]: connected to unix:/x
vgpu[7]: cuInit(Flags=0) = 0 [local, 10.0 us]
vgpu[7]: cuMemAlloc_v2(dptr=0x1, bytesize=4) = 2 [waited, 30.0 us]
vgpu[8]: cuMemAlloc_v2(dptr=0x1, bytesize=4) = 0 [waited, 50.0 us]
the program's own line
vgpu[8]: cuLaunchKernel(f=a(b) = 0 [local, 1 us], gridDimX=1) = 0 [queued, 10.0 us]
""".splitlines()
PROGRAM = """
int cuInit(unsigned); int cuGetProcAddress_v2(const char *, void **, int, unsigned long, int *);
int main(void) { void *p; return cuInit(0) || cuGetProcAddress_v2("cuInit", &p, 12000, 0, 0); }
"""


def test_calls_are_added_up_by_function() -> None:
    sums = add_up(LINES)
    assert sorted(sums) == ["cuInit", "cuLaunchKernel", "cuMemAlloc_v2"]
    alloc = sums["cuMemAlloc_v2"]
    assert (alloc.calls, alloc.errors, alloc.waited, alloc.total_us, alloc.longest_us) == (2, 1, 2, 80.0, 50.0)
    table = format_summary(sums).splitlines()
    assert table[1].split() == ["80.0", "0.080", "40.0", "50.0", "2", "2", "1", "cuMemAlloc_v2"]
    assert table[-1].split()[-1] == "total"


def test_a_summary_as_json() -> None:
    document = json.loads(format_json(add_up(LINES)))
    assert next(iter(document)) == "cuMemAlloc_v2"
    assert document["cuMemAlloc_v2"] | {"calls": 2, "errors": 1, "waited": 2} == document["cuMemAlloc_v2"]


def test_nothing_was_called(tmp_path: Path) -> None:
    assert read(tmp_path / "absent") == {}
    assert format_summary({}).splitlines()[-1].endswith("total")


def test_the_file_of_a_summary_goes_with_the_run() -> None:
    environment: dict[str, str] = {}
    with traced("summary", environment):
        folder = Path(environment["VGPU_LOG_FILE"]).parent
        assert folder.is_dir()
    assert not folder.exists()


@pytest.mark.parametrize(("level", "has_lookups"), [("trace", False), ("trace-all", True)])
def test_lookups_of_functions_are_logged_where_they_are_asked_for(
    tmp_path: Path, level: str, has_lookups: bool
) -> None:
    import subprocess

    program = compile_c(tmp_path / "program", PROGRAM, "-x", "none", str((LIB / "libcuda.so.1").resolve()))
    environment = ENVIRONMENT | {"LD_LIBRARY_PATH": str(LIB), "VGPU_LOG": level, "VGPU_ENDPOINT": "unix:/nowhere"}
    logged = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=PATIENCE_S).stderr
    assert "cuInit(Flags=0)" in logged
    program_calls_it = compile_c(
        tmp_path / "lookup",
        PROGRAM.replace("cuInit(0) || ", ""),
        "-x",
        "none",
        str((LIB / "libcuda.so.1").resolve()),
    )
    logged = subprocess.run(
        [program_calls_it], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    ).stderr
    assert ("cuGetProcAddress_v2(" in logged) == has_lookups
