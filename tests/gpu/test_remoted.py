"""On a real card: unmodified programs and frameworks through vgpud give what they give natively."""

import importlib.util
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.gpu.conftest import RemotedRun, python

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

PROGRAMS = sorted(p.stem for p in (Path(__file__).parents[1] / "programs").glob("*.cu") if "." not in p.stem)
NUMBERS = Path(__file__).with_name("framework_numbers.py")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(remoted_run: RemotedRun, programs: Path, name: str) -> None:
    done = remoted_run([programs / name])
    if name == "pinned" and not remoted_run.shared_memory:  # the one thing that needs memory in common: it is said so
        assert "cudaErrorNotSupported" in done.stdout
        return
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert f"ok {name}" in done.stdout


@pytest.mark.parametrize("framework", ["torch", "cupy", "jax"])
def test_framework_gives_native_numbers(remoted_run: RemotedRun, native_run: Run, framework: str) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed on this machine")
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if (
        not remoted_run.shared_memory
    ):  # XLA times its candidates by kernels that read pinned memory, which must be in common
        env["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
    native = native_run([python(), NUMBERS, framework], env=env, timeout_s=300)
    settings = [f"{name}={value}" for name, value in env.items()]
    remoted = remoted_run(["env", *settings, python(), NUMBERS, framework])
    assert native.returncode == 0, native.stderr
    assert remoted.returncode == 0, remoted.stderr
    assert remoted.stdout == native.stdout
    assert remoted.stdout.endswith("end\n")
