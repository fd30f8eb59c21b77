"""Models of torchvision and transformers, trained and evaluated, give the CPU's numbers to the last bit."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.pypi import SITE, environment, packages
from tests.torch.conftest import PROGRAMS, RunTorch, torch_python

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(900)]


def site(name: str) -> Path:
    """The packages of a model; none installs another torch."""
    if name == "resnet":
        return packages("torchvision==0.29.1", "pillow")
    return environment("transformers==5.24.0") / SITE


@pytest.mark.parametrize("name", ["resnet", "llama"])
def test_a_model_trains_as_on_the_cpu(run_torch: RunTorch, name: str) -> None:
    path = {"PYTHONPATH": str(site(name))}
    cuda = run_torch("models.py", name, "cuda", env=path, timeout_s=400)
    assert cuda.returncode == 0, cuda.stderr[-3000:]
    command = [str(torch_python()), str(PROGRAMS / "models.py"), name, "cpu"]
    environment = {**os.environ, **path, "OMP_NUM_THREADS": "1"}
    cpu = subprocess.run(command, capture_output=True, text=True, timeout=400, env=environment)
    assert cpu.returncode == 0, cpu.stderr[-3000:]
    assert cuda.stdout == cpu.stdout
    assert len(cpu.stdout.splitlines()) >= 4
