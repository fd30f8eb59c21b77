"""Unmodified CUDA programs from PyPI, each in an environment of its own, compared with the CPU by a small script."""

from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.clients.requirements import NUMBA
from tests.pypi import SITE, environment

Run = Callable[..., CompletedProcess[str]]
PROGRAMS = Path(__file__).parent / "programs"
NVRTC = "nvidia-cuda-nvrtc==13.0.*"

REQUIREMENTS = {
    "tinygrad": ("tinygrad==0.14.*", "numpy", NVRTC),
    "cuda_core": ("cuda-core==1.*", "cuda-bindings==13.*", "numpy", NVRTC),
    "numba": NUMBA,
    "taichi": ("taichi==1.7.*", "numpy"),
}

pytestmark = pytest.mark.client


def run_client(
    vgpu_run: Run,
    name: str,
    env: dict[str, str] | None = None,
    *,
    also: tuple[str, ...] = (),
    arguments: Sequence[str] = (),
) -> str:
    python = environment(*REQUIREMENTS[name], *also) / "bin/python"
    result = vgpu_run([python, PROGRAMS / f"with_{name}.py", *arguments], env=env, timeout_s=200)
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    assert f"ok {name}" in result.stdout.splitlines(), result.stdout
    return result.stdout


@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", REQUIREMENTS)
def test_client_installs(name: str) -> None:
    """A test of its own, so that no other test's time limit includes a download."""
    assert (environment(*REQUIREMENTS[name]) / "bin/python").exists()


def test_tinygrad_with_its_own_ptx(vgpu_run: Run) -> None:
    assert "PTXRenderer" in run_client(vgpu_run, "tinygrad", {"DEV": "CUDA:PTX", "CACHELEVEL": "0"})


def test_tinygrad_with_nvrtc(vgpu_run: Run) -> None:
    nvrtc = environment(*REQUIREMENTS["tinygrad"]) / SITE / "nvidia/cu13/lib"
    said = run_client(vgpu_run, "tinygrad", {"DEV": "CUDA", "CACHELEVEL": "0", "LD_LIBRARY_PATH": str(nvrtc)})
    assert "CUDARenderer" in said


def test_cuda_core(vgpu_run: Run) -> None:
    run_client(vgpu_run, "cuda_core")


def test_machine_code_from_cuda_core(vgpu_run: Run) -> None:
    """vgpu's library in front of NVRTC returns PTX where machine code is asked for."""
    run_client(vgpu_run, "cuda_core", arguments=["cubin"])


def test_numba(vgpu_run: Run) -> None:
    run_client(vgpu_run, "numba")


def test_numba_with_nvjitlink(vgpu_run: Run) -> None:
    """Where nvJitLink is installed, numba links LTO-IR with it."""
    run_client(vgpu_run, "numba", also=("nvidia-nvjitlink==13.0.*",))


def test_taichi(vgpu_run: Run) -> None:
    run_client(vgpu_run, "taichi")
