"""Unmodified monitors from PyPI show the devices and exit with 0, although a simulated device has no sensors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.pypi import environment

pytestmark = pytest.mark.client

NVITOP = ("nvitop==1.7.2",)
GPUSTAT = ("gpustat==1.1.1", "setuptools")
GLANCES = ("glances==4.5.8", "nvidia-ml-py>=13.580")


@pytest.mark.timeout(700)
@pytest.mark.parametrize(("requirements", "from_source"), [(NVITOP, ""), (GPUSTAT, "gpustat"), (GLANCES, "")])
def test_client_installs(requirements: tuple[str, ...], from_source: str) -> None:
    """A separate test, so that no other test's time includes a download."""
    assert (environment(*requirements, from_source=from_source) / "bin/python").exists()


def shown(vgpu_run: Run, folder: Path, module: str, *arguments: str) -> str:
    result = vgpu_run([folder / "bin/python", "-m", module, *arguments], gpu="h100,t4")
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_nvitop(vgpu_run: Run) -> None:
    text = shown(vgpu_run, environment(*NVITOP), "nvitop", "-1", "--ascii")
    assert "Driver Version: 580.159.04" in text
    assert "CUDA Driver Version: 13.0" in text
    assert "H100 PCIe" in text
    assert "0B / 79.11GiB" in text
    assert "0B / 15095MiB" in text
    assert "N/A" in text


def test_gpustat(vgpu_run: Run) -> None:
    text = shown(vgpu_run, environment(*GPUSTAT, from_source="gpustat"), "gpustat", "--no-color", "-cpu")
    assert "[0] NVIDIA H100 PCIe" in text
    assert "0 / 81008 MB" in text
    assert "[1] Tesla T4" in text


def test_glances(vgpu_run: Run) -> None:
    text = shown(vgpu_run, environment(*GLANCES), "glances", "--stdout", "gpu", "--stop-after", "2")
    assert "'name': 'NVIDIA H100 PCIe', 'mem': 0.0, 'proc': None, 'temperature': None" in text


def test_pytorchs_way_to_count_devices(vgpu_run: Run) -> None:
    """torch.cuda.device_count() makes these calls by ctypes before initialisation; none of them may fail."""
    code = (
        "from ctypes import CDLL, byref, c_int, c_void_p, create_string_buffer as buffer\n"
        "n = CDLL('libnvidia-ml.so.1'); count = c_int(-1)\n"
        "print(n.nvmlInit(), n.nvmlDeviceGetCount_v2(byref(count)), count.value)\n"
        "h, text = c_void_p(), buffer(96)\n"
        "print(n.nvmlDeviceGetHandleByIndex_v2(0, byref(h)), n.nvmlDeviceGetUUID(h, text, 96), len(text.value))\n"
    )
    result = vgpu_run([sys.executable, "-c", code], gpu="h100,t4")
    assert result.stdout == "0 0 2\n0 0 40\n", result.stderr
