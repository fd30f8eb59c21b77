"""The checks (programs, the driver calls of the oracle, libraries), and how to run them on one side."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from vgpud.bench.side import Side

from tests.conformance.frameworks import CHECKS
from tests.conformance.outcome import Outcome
from tests.programs.toolchain import CALL_THE_DEVICE_RUNTIME, OF_HOPPER, PTX, PTX_90, cuda13

ROOT = Path(__file__).resolve().parents[2]
ORACLE = ROOT / "tests/shim/oracle"
FRAMEWORKS = Path(__file__).with_name("frameworks.py")
PROGRAMS = tuple(sorted(p.stem for p in (ROOT / "tests/programs").glob("*.cu") if "." not in p.stem))
POLLING = {"order", "words"}  # without shared memory, host and kernel do not see each other's writes before a wait
FAULTS = ("bad", "trap")
GROUPS = ("programs", "calls", *CHECKS)
_PROGRAM_TIMEOUT_S = 120
_LIBRARY_TIMEOUT_S = 900

Outcomes = dict[str, Outcome]


@dataclass(frozen=True)
class Suite:
    """The programs that are built once and run on every side."""

    programs: dict[str, Path]
    questions: Path | None

    def run(self, side: Side, groups: Iterable[str], *, python: str, simulated: bool, shared_memory: bool) -> Outcomes:
        """Run groups of checks on one side; returns the outcomes by name.

        Args:
            shared_memory: Whether the remoted sides of the comparison share memory with their clients.
        """
        found: Outcomes = {}
        for group in groups:
            if group == "programs":
                found |= {
                    f"program {name}": _program(side, name, path, shared_memory) for name, path in self.programs.items()
                }
            elif group == "calls":
                found |= self._calls(side)
            else:
                found |= _library(side, group, python, simulated)
        return found

    def _calls(self, side: Side) -> Outcomes:
        assert self.questions is not None
        found: Outcomes = {}
        for fault in ("", *FAULTS):
            done = _execute([self.questions, *([fault] if fault else [])], side, _PROGRAM_TIMEOUT_S)
            found |= named_answers(done.stdout.splitlines(), fault)
            if done.returncode:
                found[f"calls {fault or 'in order'}"] = Outcome(error=_last_words(done))
        return found


def build(groups: Iterable[str], folder: Path, programs: Iterable[str] = PROGRAMS) -> Suite:
    """Compile what the groups need: with this machine's nvcc if it has one, else with PyPI's.

    Raises:
        RuntimeError, OSError, subprocess.SubprocessError: Compiling failed.
    """
    groups = set(groups)
    if not groups & {"programs", "calls"}:
        return Suite({}, None)
    local = _local_toolkit()
    pypi = cuda13() if local is None else None
    include = (pypi.root if pypi is not None else local or Path()) / "include"

    def compiled(name: str) -> Path:
        return pypi.build_as_it_must_be(name) if pypi is not None else _build_here(local or Path(), name, folder)

    wanted = list(programs) if "programs" in groups else []
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        built = dict(zip(wanted, pool.map(compiled, wanted), strict=True))
    questions = folder / "questions"
    if "calls" in groups:
        library = ROOT / "build/guest/libcuda.so.1"  # for its soname alone: each side loads its own libcuda
        options = ["-Wno-deprecated-declarations", f"-I{include}", "-o", str(questions)]
        subprocess.run(["cc", *options, str(ORACLE / "vgt_questions.c"), str(library), "-lpthread"], check=True)
    return Suite(built, questions)


def _local_toolkit() -> Path | None:
    """The folder of a CUDA toolkit on this machine that has nvcc and the headers."""
    found = shutil.which("nvcc")
    places = [Path("/usr/local/cuda"), *([Path(os.path.realpath(found)).parents[1]] if found else [])]
    return next((root for root in places if (root / "bin/nvcc").exists() and (root / "include/cuda.h").exists()), None)


def _build_here(toolkit: Path, name: str, folder: Path) -> Path:
    source = ROOT / "tests/programs"
    parts = sorted(source.glob(f"{name}.*.cu"))
    command = [
        toolkit / "bin/nvcc",
        "-std=c++17",
        "-O2",
        *(PTX_90 if name in OF_HOPPER else PTX).options,
        *(["-rdc=true"] if parts or name in CALL_THE_DEVICE_RUNTIME else []),
        f"-I{source}",
    ]
    done = subprocess.run(
        [*command, "-Wno-deprecated-gpu-targets", "-o", folder / name, source / f"{name}.cu", *parts],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        raise RuntimeError(f"nvcc {name}.cu failed: {done.stderr[-2000:]}")
    return folder / name


def named_answers(lines: Iterable[str], section: str) -> Outcomes:
    """Outcomes of `question => answer` lines; repetitions of a question are numbered, so that their order counts."""
    found: Outcomes = {}
    asked: dict[str, int] = {}
    for line in lines:
        question, arrow, answer = line.partition("=>")
        if arrow:
            text = "".join(question.split())
            asked[text] = asked.get(text, 0) + 1
            name = f"call {section + ' ' if section else ''}{text} #{asked[text]}"
            found[name] = Outcome((answer.strip(),))
    return found


def recorded() -> Outcomes:
    """What an H100 answered to the oracle's questions."""
    sections: dict[str, list[str]] = {"": []}
    current = sections[""]
    for line in (ORACLE / "answers.txt").read_text().splitlines():
        if line.startswith("# "):
            title = line[2:]
            current = sections.setdefault(title if title in FAULTS else "", [])
            if title.startswith("sticky faults"):
                current = []  # only a heading: a section for each fault follows
        else:
            current.append(line)
    return {
        name: outcome for section, lines in sections.items() for name, outcome in named_answers(lines, section).items()
    }


def _execute(command: list[str | Path], side: Side, timeout_s: float) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    try:
        return subprocess.run(words, env=side.of_program(), capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, "", f"not done within {timeout_s:.0f} s")


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return f"exit {done.returncode}: {lines[-1][:200] if lines else 'without a word'}"


def _program(side: Side, name: str, path: Path, shared_memory: bool) -> Outcome:
    if name in POLLING and not shared_memory:
        return Outcome(missing="it polls memory while a kernel runs, which needs shared memory")
    done = _execute([path], side, _PROGRAM_TIMEOUT_S)
    if done.returncode == 0 and re.search(rf"^ok {name}\b", done.stdout, re.MULTILINE):
        return Outcome((f"ok {name}",))  # the program has compared its results with the CPU's
    if "needs two devices" in done.stdout:
        return Outcome(missing="this machine has one device")
    return Outcome(error=_last_words(done))


def _library(side: Side, family: str, python: str, simulated: bool) -> Outcomes:
    names = [f"{family}: {name}" for name in CHECKS[family]]
    if simulated:
        return {name: Outcome(missing="its kernels are machine code, which a simulator cannot run") for name in names}
    done = _execute([python, FRAMEWORKS, family], side, _LIBRARY_TIMEOUT_S)
    found = {fields.pop("name"): _outcome(fields) for fields in map(json.loads, done.stdout.splitlines())}
    return {name: found.get(name, Outcome(error=_last_words(done))) for name in names}


def _outcome(fields: dict[str, object]) -> Outcome:
    values = fields.get("values")
    return Outcome(
        tuple(float(value) for value in values) if isinstance(values, list) else (),
        float(str(fields.get("tolerance", 0.0))),
        None if fields.get("error") is None else str(fields["error"]),
        None if fields.get("missing") is None else str(fields["missing"]),
    )
