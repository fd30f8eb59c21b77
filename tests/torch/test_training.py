"""Training on a simulated GPU ends with the CPU's losses and weights, to the last bit."""

import subprocess
from itertools import product

import pytest

from tests.torch.conftest import PROGRAMS, RunTorch, torch_python

pytestmark = pytest.mark.client


@pytest.mark.timeout(700)
def test_torch_installs() -> None:
    """A test of its own, so that no other test's time includes the download."""
    assert torch_python().exists()


def on_the_cpu(*arguments: str) -> list[str]:
    command = [str(torch_python()), str(PROGRAMS / "train.py"), "cpu", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, env={"OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize(("kind", "optimizer"), [*product(("mlp", "gpt"), ("foreach", "fused"))])
def test_losses_and_weights_are_those_of_the_cpu(run_torch: RunTorch, kind: str, optimizer: str) -> None:
    result = run_torch("train.py", "cuda", kind, optimizer)
    assert result.returncode == 0, result.stderr
    *cuda, where = result.stdout.splitlines()
    *cpu, _ = on_the_cpu(kind, optimizer)
    assert where == "on {'cuda'}"
    assert cuda == cpu
    assert len(set(cpu)) == len(cpu) > 10
