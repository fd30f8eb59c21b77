"""Frameworks around torch, with their own training loops: transformers, Lightning, torchvision's operators."""

import math
import os
import subprocess

import pytest

from tests.pypi import SITE, environment, packages
from tests.torch.conftest import PROGRAMS, RunTorch, torch_python

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(1200)]

# Packages, none of which installs another torch, and the relative tolerance of losses compared with the CPU's:
# transformers' Trainer uses a different optimizer implementation on each device.
FRAMEWORKS = {
    "trainer": (("accelerate==1.*", "psutil", "packaging"), 1e-5),
    "lightning": (("pytorch-lightning==2.*", "lightning-utilities", "torchmetrics", "tqdm", "packaging"), 0.0),
    "vision": (("torchvision==0.29.1", "pillow"), 0.0),
}


def site(name: str) -> str:
    paths = [packages(*FRAMEWORKS[name][0])]
    if name == "trainer":
        paths.append(environment("transformers==5.24.0") / SITE)
    return ":".join(map(str, paths))


def results(printed: str) -> list[list[str]]:
    """The printed lines of a name and values, without a framework's own lines, which contain times."""
    return [line.split() for line in printed.splitlines() if not line.startswith("{")]


def is_near(found: str, expected: str, tolerance: float) -> bool:
    if found == expected or "0x" not in expected:
        return found == expected
    return math.isclose(float.fromhex(found), float.fromhex(expected), rel_tol=tolerance)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_trains_as_on_the_cpu(run_torch: RunTorch, name: str) -> None:
    path = {"PYTHONPATH": site(name)}
    cuda = run_torch("frameworks.py", name, "cuda", env=path, timeout_s=500)
    assert cuda.returncode == 0, cuda.stderr[-3000:]
    command = [str(torch_python()), str(PROGRAMS / "frameworks.py"), name, "cpu"]
    own = {**os.environ, **path, "OMP_NUM_THREADS": "1"}
    cpu = subprocess.run(command, capture_output=True, text=True, timeout=500, env=own)
    assert cpu.returncode == 0, cpu.stderr[-3000:]
    found, expected = results(cuda.stdout), results(cpu.stdout)
    assert len(found) == len(expected) >= 6
    for line, cpu_line in zip(found, expected, strict=True):
        assert len(line) == len(cpu_line)
        assert all(is_near(a, b, FRAMEWORKS[name][1]) for a, b in zip(line, cpu_line, strict=True)), (line, cpu_line)
