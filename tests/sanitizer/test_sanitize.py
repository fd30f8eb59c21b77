"""`vgpu sanitize` finds planted faults and nothing else, in a selection of the cases of tests/sanitizer/corpus.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sanitizer import corpus

SOME = {
    "memcheck": ["write-1-past", "pointer-in-memory", "after-free", "misaligned-8", "ok-store", "ok-heap"],
    "leakcheck": ["leak"],
    "initcheck": ["half-written", "shared-half", "ok-shared-set", "ok-free-later"],
    "racecheck": [
        "shared-bytes",
        "ok-shared-bytes",
        "tiles",
        "ok-tiles",
        "handed-over",
        "ok-handed-over",
        "reverse-again",
        "neighbour-blocks",
        "one-place-warp",
        "ok-last-block",
        "ok-grid-sync",
        "ok-flags",
    ],
    "synccheck": ["half-a-warp", "wrong-count", "warp-mask", "ok-early-exit", "ok-whole-warps"],
}


@pytest.fixture(scope="module")
def program() -> Path:
    return corpus.build()


@pytest.mark.parametrize("tool", SOME)
def test_planted_faults(program: Path, tool: str) -> None:
    """Each fault is reported by its tool; correct code is not reported (issue 16)."""
    chosen = [case for case in corpus.cases((program,)) if case.name in SOME[tool]]
    assert len(chosen) == len(SOME[tool])
    result, _ = corpus.check(tool, chosen, (program,))
    assert (result.missed, result.false) == ([], [])


@pytest.mark.ecosystem
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("compiler", corpus.COMPILERS)
@pytest.mark.parametrize("tool", sorted(set(corpus.TOOLS) - {"leakcheck"}))
def test_planted_faults_of_other_compilers(compiler: str, tool: str) -> None:
    """The same for every kernel that numba and Triton compile."""
    program = corpus.compiled_by(compiler)
    chosen = [case for case in corpus.cases(program) if case.tool in (tool, "none")]
    assert len(chosen) > 3
    result, _ = corpus.check(tool, chosen, program)
    assert (result.missed, result.false) == ([], [])


def sanitize(program: Path, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "vgpu", "sanitize", "--gpu", "a100", *options, "--", program, name]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_what_is_printed(program: Path) -> None:
    """The output has compute-sanitizer's lines and the program's own; the exit code is that of --error-exitcode."""
    done = sanitize(program, "write-1-past", "--error-exitcode", "7")
    lines = done.stdout.splitlines()
    assert done.returncode == 7
    assert "an illegal memory access was encountered" in lines
    start = lines.index("========= Invalid __global__ write of size 4 bytes")
    source = (corpus.ROOT / "tests/sanitizer/faults.cu").read_text().splitlines()
    number = next(i for i, line in enumerate(source, 1) if line.startswith("__global__ void store(int *p"))
    assert lines[start + 1].startswith("=========     at store(int*, int) in ")
    assert lines[start + 1].endswith(f"faults.cu:{number}")
    assert lines[start + 2] == "=========     by thread (63,0,0) in block (0,0,0)"
    assert lines[start + 4].startswith("=========     and is 1 bytes after the nearest allocation at 0x")
    assert lines[start + 4].endswith(" of size 256 bytes")
    assert lines[-1] == "========= ERROR SUMMARY: 1 error"


def test_without_faults_the_exit_code_is_the_programs(program: Path) -> None:
    done = sanitize(program, "ok-store", "--error-exitcode", "7")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "========= ERROR SUMMARY: 0 errors")
