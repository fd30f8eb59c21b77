"""Runs a small part of the suite on the simulator, and all of it on a machine with a card (`make build` first)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import Future

import pytest

from tests.conformance import __main__ as conformance
from tests.conformance.__main__ import NOTHING_COMPARED, Column, gathered, main
from tests.conformance.frameworks import CHECKS
from tests.conformance.outcome import Outcome
from tests.conformance.suite import FRAMEWORKS, GROUPS, Outcomes, recorded
from tests.shim.test_oracle import sections

SMALL = ["saxpy", "reduction", "streams", "errors"]


@pytest.mark.timeout(700)
def test_the_simulator_conforms(capsys: pytest.CaptureFixture[str]) -> None:
    programs = [word for name in SMALL for word in ("--program", name)]
    code = main(["--simulated", "--group", "programs", "--group", "calls", "--group", "cupy", "--all", *programs])
    text = capsys.readouterr().out
    assert code == 0, text
    for name in SMALL:
        assert f"| program {name} |  | ok {name} | same |" in text
    assert "different" not in text
    assert "| cupy: elementwise, matmul, sort |  | not run: its kernels are machine code" in text


def test_every_recorded_answer_is_a_check() -> None:
    answers = [pair for pairs in sections().values() for pair in pairs]
    assert len(recorded()) == len(answers) > 230


def test_what_a_driver_answers_otherwise_is_found(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    wrong = dict(recorded())
    name = next(name for name in wrong if name.startswith("call cuDeviceGet(&d,99)"))
    wrong[name] = type(wrong[name])(("7",))
    monkeypatch.setattr("tests.conformance.__main__.recorded", lambda: wrong)
    assert main(["--simulated", "--group", "calls"]) == 1
    assert f"| {name} | 7 | 101 | different |" in capsys.readouterr().out


@pytest.mark.parametrize("family", CHECKS)
def test_a_library_that_is_not_there_is_named(family: str, tmp_path) -> None:
    for module in ("torch", "cupy", "jax", "triton"):
        (tmp_path / f"{module}.py").write_text(f"raise ImportError('{module} is absent on purpose')")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, FRAMEWORKS, family], capture_output=True, text=True, env=env, timeout=60)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["name"] for line in lines] == [f"{family}: {name}" for name in CHECKS[family]]
    assert all("absent on purpose" in line["missing"] for line in lines)


def test_the_libraries_that_must_work_each_have_a_check() -> None:
    names = " ".join(f"{family} {name}" for family, checks in CHECKS.items() for name in checks)
    wanted = [
        "bf16 training",
        "attention",
        "torch.compile",
        "convolution",
        "LSTM",
        "fp8",
        "FFT",
        "SVD",
        "solve",
        "eigh",
    ]
    for word in [*wanted, "sparse", "CUDA graph", "cupy", "jax", "triton", "nccl"]:
        assert word in names


def test_what_needs_shared_memory_is_not_run_without(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--simulated", "--channel", "unix", "--group", "programs", "--program", "pinned", "--program", "order"]
    assert main([*words, "--all"]) == 0
    found = capsys.readouterr().out
    assert "| program pinned | ok pinned | same |" in found
    assert "| program order | not run: it polls memory while a kernel runs, which needs shared memory |" in found


def test_each_channel_has_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--simulated", "--channel", "shm", "unix", "--group", "programs", "--program", "order"]
    assert main([*words, "--all"]) == NOTHING_COMPARED
    found = capsys.readouterr().out
    assert "| check | simulated, shm | simulated, unix | verdict |" in found
    assert "| program order | ok order | not run: it polls memory" in found


def test_an_interrupted_run_has_what_was_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    native, done, late = Column("native", "shm", "native"), Future[Outcomes](), Future[Outcomes]()
    done.set_result({"x": Outcome(("1",))})
    monkeypatch.setattr(conformance, "wait", interrupted)
    assert gathered({(native, "calls"): done, (native, "torch"): late}) == {"native": {"x": Outcome(("1",))}}
    assert late.cancelled()
    assert "interrupted: without native: torch" in capsys.readouterr().err


def test_nothing_compared_is_no_success() -> None:
    assert main(["--simulated", "--group", "cupy"]) == NOTHING_COMPARED


@pytest.mark.gpu
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("channel", ["shm", "unix"])
def test_remoted_is_as_native(channel: str, group: str, capsys: pytest.CaptureFixture[str]) -> None:
    libcuda = os.environ.get("VGPU_TEST_LIBCUDA", "libcuda.so.1")
    sides = ["--native", "--remoted", "--no-recorded", "--channel", channel, "--libcuda", libcuda]
    code = main([*sides, "--group", group, "--all"])
    text = capsys.readouterr().out
    if code == NOTHING_COMPARED:
        pytest.skip(f"no {group} on this machine")
    assert code == 0, text
