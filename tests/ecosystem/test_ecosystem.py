"""Frameworks as they come from PyPI, with NVIDIA's libraries below them, on simulated devices; the CPU's answer beside.

`make test-ecosystem` runs them: they take gigabytes and minutes. docs/simulator.md keeps the last results.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.pypi import environment

Run = Callable[..., CompletedProcess[str]]
PROGRAMS = Path(__file__).parent / "programs"
TIMEOUT_S = 1500

REQUIREMENTS = {
    "cupy": ("cupy-cuda13x[ctk]==14.2.*", "numpy"),
    "jax": ("jax[cuda13]==0.10.2", "numpy"),
    "triton": ("triton==3.8.*", "torch==2.14.*", "numpy"),
    "xgboost": ("xgboost-cu13==3.2.*", "numpy", "scikit-learn"),
}

ARGUMENTS = {"triton": ["torch"]}

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(TIMEOUT_S + 60)]


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_installs(name: str) -> None:
    """Apart, so that no other test's time holds a download."""
    assert (environment(*REQUIREMENTS[name]) / "bin/python").exists()


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_framework(vgpu_run: Run, tmp_path: Path, name: str) -> None:
    python = environment(*REQUIREMENTS[name]) / "bin/python"
    own = {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "CUPY_CACHE_DIR": str(tmp_path / "cupy")}
    command = [python, PROGRAMS / f"with_{name}.py", *ARGUMENTS.get(name, ())]
    result = vgpu_run(command, gpu="forward", env=own, timeout_s=TIMEOUT_S)
    print(result.stdout)
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    assert f"ok {name} in" in result.stdout


def test_half_products_of_cublas(vgpu_run: Run) -> None:
    """Up to 13.8: the heuristics of 13.10 have Tile IR alone for devices that they do not know."""
    python = environment("nvidia-cublas==13.8.*", "numpy") / "bin/python"
    result = vgpu_run([python, PROGRAMS / "with_cublas.py"], gpu="forward", timeout_s=TIMEOUT_S)
    assert result.returncode == 0, f"{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    assert "ok cublas in" in result.stdout


def test_census_of_cublas(vgpu_run: Run) -> None:
    """At least 99 of 100 sampled kernels of cuBLAS and cuRAND would run."""
    site = environment(*REQUIREMENTS["cupy"])
    libraries = [next(site.rglob(name)) for name in ("libcublas.so.13", "libcurand.so.10")]
    vgpu = shutil.which("vgpu")
    assert vgpu
    result = vgpu_run([vgpu, "sim", "census", "--json", "--sample", "100", *libraries], timeout_s=TIMEOUT_S)
    for library in json.loads(result.stdout):
        assert library["read"] >= 20
        assert library["accepted"] >= 0.99 * library["read"], library["refused"]
