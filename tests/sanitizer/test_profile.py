"""`vgpu sim profile` counts what kernels do: here in tests/programs/reduction.cu, with known accesses (issue 16)."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chrome_trace import problems
from tests.programs.toolchain import PTX, cuda13

N = 54321  # numbers that the program reduces
VGPU = Path(sys.executable).parent / "vgpu"


@pytest.fixture(scope="module")
def program() -> Path:
    return cuda13().build("reduction", PTX)


def profile(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [VGPU, "sim", "profile", "--gpu", "a100", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_counts(program: Path, tmp_path: Path) -> None:
    """Each kernel reads every number once; the trace shows each launch, and launches on one track do not overlap."""
    done = profile("--json", "--output", tmp_path / "table", "--trace", tmp_path / "trace", "--", program)
    assert (done.returncode, done.stdout) == (0, f"ok reduction n={N}\n")
    kernels = {each["kernel"]: each for each in json.loads((tmp_path / "table").read_text())}
    assert set(kernels) == {"scan(int const*, int, int*)", "reduce(int const*, int, totals*)",
                            "count_odd(int const*, int, totals*)"}  # fmt: skip
    scan, odd = kernels["scan(int const*, int, int*)"], kernels["count_odd(int const*, int, totals*)"]
    assert (scan["launches"], scan["failed"]) == (1, 0)
    assert scan["bytes"]["global read"] == scan["bytes"]["global write"] == 4 * N
    assert kernels["reduce(int const*, int, totals*)"]["bytes"]["global read"] == 4 * N
    assert 0 < odd["divergent_branches"] < odd["branches"]
    for each in kernels.values():
        assert each["warp_instructions"] < each["thread_instructions"] <= 32 * each["warp_instructions"]

    trace = json.loads((tmp_path / "trace").read_text())
    assert problems(trace) == []
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert {e["name"]: e["args"]["bytes"] for e in events} == {
        name: {place: n for place, n in each["bytes"].items() if n} for name, each in kernels.items()
    }
    for track in {e["tid"] for e in events}:
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["tid"] == track)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_table(program: Path) -> None:
    """The table is on stderr; stdout holds only the program's own output."""
    done = profile("--", program)
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (0, f"ok reduction n={N}\n")
    assert lines[-4].split()[:4] == ["TIME", "SHARE", "LAUNCHES", "MEAN"]
    assert sum(float(line.split("%")[0].split()[-1]) for line in lines[-3:]) == pytest.approx(100, abs=0.2)


def test_a_program_without_kernels_and_its_exit_code() -> None:
    done = profile("--", "sh", "-c", "exit 3")
    assert (done.returncode, done.stderr) == (3, "no kernel was launched\n")
