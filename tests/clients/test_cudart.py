"""NVIDIA's dynamic runtimes from 11.8 to 13.5, unmodified, on vgpu's libcuda."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.programs.toolchain import PTX, cuda13
from tests.pypi import SITE, environment, packages

Run = Callable[..., CompletedProcess[str]]
PROGRAMS = Path(__file__).parent / "programs"
BUILT = Path(__file__).resolve().parents[2] / "build/programs"

# requirement, library, sizeof(struct cudaDeviceProp) in that version's driver_types.h
RUNTIMES = {
    "11.8": ("nvidia-cuda-runtime-cu11==11.8.89", "nvidia/cuda_runtime/lib/libcudart.so.11.0", 728),
    "12.4": ("nvidia-cuda-runtime-cu12==12.4.127", "nvidia/cuda_runtime/lib/libcudart.so.12", 1032),
    "12.8": ("nvidia-cuda-runtime-cu12==12.8.90", "nvidia/cuda_runtime/lib/libcudart.so.12", 1032),
    "13.0": ("nvidia-cuda-runtime==13.0.96", "nvidia/cu13/lib/libcudart.so.13", 1008),
    "13.5": ("nvidia-cuda-runtime==13.5.37", "nvidia/cu13/lib/libcudart.so.13", 1008),
}

pytestmark = pytest.mark.client


@pytest.fixture(scope="session")
def fatbin() -> Path:
    """The kernels as nvcc wraps them for a program: one fat binary that holds PTX."""
    BUILT.mkdir(parents=True, exist_ok=True)
    built = BUILT / "kernels.fatbin"
    nvcc = cuda13().root / "bin/nvcc"
    command = [str(nvcc), "-fatbin", *PTX.options, "-o", str(built), str(PROGRAMS / "kernels.cu")]
    subprocess.run(command, check=True, timeout=120)
    return built


@pytest.mark.timeout(700)
@pytest.mark.parametrize("version", RUNTIMES)
def test_runtime_installs(version: str) -> None:
    """A test of its own, so that no other test's time limit includes a download."""
    requirement, library, _ = RUNTIMES[version]
    assert (packages(requirement) / library).exists()


@pytest.mark.parametrize("version", RUNTIMES)
def test_runtime(vgpu_run: Run, fatbin: Path, version: str) -> None:
    requirement, library, properties_nbytes = RUNTIMES[version]
    root = environment(requirement, with_dependencies=False)
    command = [root / "bin/python", PROGRAMS / "with_cudart.py", root / SITE / library, fatbin, properties_nbytes]
    result = vgpu_run(command)
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    assert "ok cudart" in result.stdout.splitlines()
