"""The simulator must give the answers of real hardware to about 230 calls, most of them wrong on purpose."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from vgpud._gen.api import ENTRIES

from tests.programs.toolchain import Toolchain, cuda13
from tests.shim.client import LIBRARY

Run = Callable[..., CompletedProcess[str]]
HERE = Path(__file__).resolve().parent / "oracle"
NOT_SUPPORTED = "801"

# Functions that the guest library has; the simulator may refuse them.
SIMULATOR_REFUSES = {"cuStreamBeginCapture", "cuMemAddressReserve", "cuMemCreate"}

# Accepted answers that follow from an unsupported call: without a managed allocation or a handle nothing can be freed,
# and without capture a stream is an ordinary stream.
CONSEQUENCES = {
    ("cuMemFree(p)", "0"): "1",
    ("cuMemRelease(mh)", "0"): "1",
    ("cuStreamSynchronize(s)", "900"): "0",
    ("cuStreamQuery(s)", "900"): "0",
    ("cuStreamEndCapture(s,&g)", "901"): "401",
    ("cuMemAlloc(&base,16)", "900"): "0",
    # A launch buffer shorter than the parameters: the H100 refused it, an H200 accepts it, and NCCL relies on that.
    ("cuLaunchKernel(k,1,1,1,1,1,1,0,0,0,ex)", "701"): "0",
}


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return cuda13()


def sections() -> dict[str, list[tuple[str, str]]]:
    """(question, answer) of each line of answers.txt, by section."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in (HERE / "answers.txt").read_text().splitlines():
        if line.startswith("# "):
            found[line[2:]] = current = []
        elif line:
            question, answer = line.split(" => ")
            current.append((question, answer))
    return found


def ask(toolchain: Toolchain, vgpu_run: Run, folder: Path, *arguments: str) -> list[str]:
    program = folder / "questions"
    command = ["cc", "-Wno-deprecated-declarations", f"-I{toolchain.root / 'include'}", str(HERE / "vgt_questions.c")]
    subprocess.run([*command, "-o", str(program), str(LIBRARY), "-lpthread"], check=True, capture_output=True)
    done = vgpu_run([program, *arguments])
    assert done.returncode == 0, done.stderr
    return [line.replace(" ", "") for line in done.stdout.splitlines() if "=>" in line]


def compare(questions: list[tuple[str, str]], got: list[str]) -> None:
    """Each answer must be the hardware's, a consequence of unsupported calls, or 801 from an unimplemented function."""
    bases = [(re.sub(r"_v\d$", "", entry.name), entry.travel == "not implemented") for entry in ENTRIES]
    missing = {name for name, absent in bases if absent} - {name for name, absent in bases if not absent}
    missing |= SIMULATOR_REFUSES
    assert len(got) == len(questions)
    wrong = []
    for (question, answer), line in zip(questions, got, strict=True):
        accepted = {answer, CONSEQUENCES.get((question, answer), answer)}
        if question.split("(")[0] in missing:
            accepted |= {NOT_SUPPORTED}
        if line not in {f"{question}=>{code}".replace(" ", "") for code in accepted}:
            wrong.append((line, accepted))
    assert wrong == []


@pytest.mark.timeout(700)
def test_wrong_calls(toolchain: Toolchain, vgpu_run: Run, tmp_path: Path) -> None:
    faults = {"sticky faults, each in its own process", "bad", "trap"}
    questions = [pair for title, pairs in sections().items() if title not in faults for pair in pairs]
    assert len(questions) > 200
    compare(questions, ask(toolchain, vgpu_run, tmp_path))


@pytest.mark.parametrize("fault", ["bad", "trap"])
def test_life_after_a_fault(toolchain: Toolchain, vgpu_run: Run, tmp_path: Path, fault: str) -> None:
    compare(sections()[fault], ask(toolchain, vgpu_run, tmp_path, fault))
