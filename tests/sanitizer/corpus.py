"""Check the sanitizer against planted faults, which nvcc, numba and Triton compile: `python -m tests.sanitizer.corpus
[NAME...]` prints, for each compiler and tool, the faults found, the faults missed, the false reports, and the seconds
that the runs took; and the kernels that were not watched, as where numba does not work with that NumPy."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon")]

from vgpud.cli.guest_libraries import Libraries, give_libraries  # noqa: E402
from vgpud.cli.private_daemon import PrivateDaemon  # noqa: E402
from vgpud.cli.sanitizer_report import read_reports  # noqa: E402

from tests.clients.requirements import NUMBA, TRITON  # noqa: E402
from tests.programs.toolchain import Flavour, cuda13  # noqa: E402
from tests.pypi import environment  # noqa: E402

GPU = "a100"
PTX_80 = Flavour("ptx80", ("-gencode", "arch=compute_80,code=compute_80"))  # compute_80 has asynchronous copies
TOOLS = {
    "memcheck": ["memcheck"],
    "leakcheck": ["memcheck", "leakcheck"],
    "initcheck": ["initcheck", "initcheck-shared"],
    "racecheck": ["racecheck"],
    "synccheck": ["synccheck"],
}
_TIMEOUT_S = 120.0
COMPILERS = {"numba": NUMBA, "triton": TRITON}
Program = tuple[str | Path, ...]


@dataclass
class Case:
    """A planted fault; with tool "none", correct code that looks faulty."""

    name: str
    tool: str
    kind: str = ""


@dataclass
class Result:
    """Names of a tool's cases, by outcome."""

    found: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)
    unwatched: list[str] = field(default_factory=list)  # launched no kernel: the compiler failed, say


def build() -> Path:
    """Build the program that contains all cases. Returns its path."""
    program, source = ROOT / "build/sanitizer/faults", ROOT / "tests/sanitizer/faults.cu"
    changed = max(path.stat().st_mtime for path in (source, source.with_name("faults_race.cuh")))
    if not program.exists() or program.stat().st_mtime < changed:
        program.parent.mkdir(parents=True, exist_ok=True)
        cuda = cuda13()
        nvcc = [cuda.root / "bin/nvcc", "-std=c++17", "-O1", "-lineinfo", *PTX_80.options, f"-I{cuda.root}/include"]
        subprocess.run([*nvcc, f"-L{cuda.library_folder()}", "-o", program, source], check=True)
    return program


def compiled_by(name: str) -> Program:
    """The program with the cases that numba or Triton compiles."""
    python = environment(*COMPILERS[name]) / "bin/python"
    return (python, ROOT / f"tests/sanitizer/faults_{name}.py")


def cases(program: Program) -> list[Case]:
    """List the cases that the program contains."""
    listed = subprocess.run([*program], capture_output=True, text=True, check=True, timeout=_TIMEOUT_S).stdout
    return [Case(*line.split()) for line in listed.splitlines()]


@functools.cache
def variables(program: Program) -> dict[str, str]:
    """What `vgpu run` sets for the program, without the endpoint. The choice is made with a daemon of its own, because
    it opens a session.
    """
    env = {**os.environ, "TRITON_CACHE_DIR": str(ROOT / "build/sanitizer/triton")}
    with PrivateDaemon(GPU) as private:
        give_libraries(env, str(program[0]), private.endpoint, Libraries())
    return env


def check(tool: str, chosen: Sequence[Case], program: Program) -> tuple[Result, float]:
    """Run the cases under a tool, one client after another. Returns the outcome and the duration in seconds."""
    result, wall_s = Result(), 0.0
    # A program of nvcc opens one session, by which the cases are told apart; one of Triton two, where PyTorch is.
    for group in [chosen] if len(program) == 1 else [[case] for case in chosen]:
        reports, outputs, seconds = run(tool, group, program)
        wall_s += seconds
        for session, case in enumerate(group, 1):
            of_case = [report for report in reports if len(group) == 1 or report["session"] == session]
            kinds = {report["kind"] for report in of_case} - {"launches"}
            if not kinds and not sum(report["count"] for report in of_case):
                result.unwatched.append(f"{case.name} ({(outputs[session - 1].splitlines() or ['no output'])[-1]})")
            elif case.tool == "none":
                (result.false if kinds else result.found).append(case.name)
            else:
                (result.found if case.kind in kinds else result.missed).append(case.name)
    return result, wall_s


def run(tool: str, group: Sequence[Case], program: Program) -> tuple[list[dict[str, Any]], list[str], float]:
    """Run cases with a vgpud of their own. Returns the reports, each case's output, and the duration in seconds."""
    with tempfile.TemporaryDirectory(prefix="vgpu-corpus-") as folder:
        config, log = Path(folder) / "vgpud.toml", Path(folder) / "log"
        limits = "[limits]\nworker_exit_timeout_s = 60\ndrain_timeout_s = 60\n"
        config.write_text(f"sanitize = {TOOLS[tool]}\n[log]\nlines_per_session_s = 1000\n{limits}")
        with PrivateDaemon(GPU, config=config, log=log) as private:
            env = {**variables(program), "VGPU_ENDPOINT": str(private.endpoint)}
            options: Any = {"env": env, "capture_output": True, "text": True, "timeout": _TIMEOUT_S, "check": True}
            begin = time.monotonic()
            outputs = [subprocess.run([*program, case.name], **options).stdout for case in group]
            wall_s = time.monotonic() - begin
            private.drain(60)
        reports, _, _ = read_reports(log.read_text(errors="replace").splitlines())
    return reports, outputs, wall_s


def main() -> None:
    """Print a table for each compiler."""
    names = sys.argv[1:]
    for compiler in ("nvcc", *COMPILERS):
        program: Program = (build(),) if compiler == "nvcc" else compiled_by(compiler)
        everything = [case for case in cases(program) if not names or case.name in names or compiler in names]
        if everything:
            table(compiler, program, everything)


def table(compiler: str, program: Program, everything: Sequence[Case]) -> None:
    right = [case for case in everything if case.tool == "none"]
    print(f"{compiler:<12}{'faults':>8}{'found':>8}{'missed':>8}{'right':>8}{'false':>8}{'time':>10}")
    for tool in TOOLS:
        wrong = [case for case in everything if case.tool == tool]
        if tool == "leakcheck" and not wrong:
            continue
        result, wall_s = check(tool, [*wrong, *(right if tool != "leakcheck" else [])], program)  # most of these leak
        found = sum(case.name in result.found for case in wrong)
        print(
            f"{tool:<12}{len(wrong):>8}{found:>8}{len(result.missed):>8}{len(right):>8}{len(result.false):>8}"
            f"{wall_s:>8.1f} s",
            *(["  missed:", *result.missed] if result.missed else []),
            *(["  false:", *result.false] if result.false else []),
            *(["  not watched:", *result.unwatched] if result.unwatched else []),
            flush=True,
        )


if __name__ == "__main__":
    main()
