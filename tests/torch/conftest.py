"""An unmodified PyTorch with CUDA from PyPI, without the NVIDIA libraries whose code never runs here."""

import contextlib
import fcntl
import functools
import os
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.conftest import ROOT
from tests.pypi import CACHE, INSTALLED, SITE, environment
from tests.torch.placeholders import place

PROGRAMS = Path(__file__).parent / "programs"
VERSION = "2.14.1"
OTHER_VERSIONS = ("2.12.1", "2.13.0")
# What `import torch` needs of its dependencies, and what torch.testing needs.
REQUIREMENTS = (
    "nvidia-cuda-runtime==13.0.*",
    "nvidia-cuda-cupti==13.0.*",
    "nvidia-cuda-nvrtc==13.0.*",
    "expecttest",
    "filelock",
    "fsspec",
    "jinja2",
    "markupsafe",
    "mpmath",
    "networkx",
    "numpy",
    "pyyaml",
    "setuptools",
    "sympy",
    "typing-extensions",
)

Run = Callable[..., CompletedProcess[str]]
RunTorch = Callable[..., CompletedProcess[str]]


def torch_python(version: str = VERSION) -> Path:
    """The interpreter of an environment with torch, created on first use (about 700 MB)."""
    root = environment(f"torch==={version}", *REQUIREMENTS, with_dependencies=False)  # === excludes 2.13.0+cpu
    if not INSTALLED:
        place_libraries(root)
    return root / "bin/python"


@functools.cache
def place_libraries(root: Path) -> None:
    with (CACHE / ".torch-placeholders.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        place(root / SITE / "torch/lib")


def full_python() -> Path:
    """The interpreter of an environment with torch and all its dependencies (3 GB)."""
    return environment(f"torch=={VERSION}", "numpy") / "bin/python"


@functools.cache
def build_core(python: Path) -> None:
    """Have vgpu-torch build its core for that interpreter's torch, unless it has already been built.

    g++ takes half a minute on an idle processor, and ten times that on a busy machine.
    """
    command = [python, "-c", "import vgpu_torch.build; vgpu_torch.build.core_library()"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "build/guest/torch"), "VGPU_TORCH": "0"}
    subprocess.run(command, check=True, env=env)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Download torch and build the core before the test's time limit starts: pytest-timeout is an inner wrapper."""
    if "run_torch" in getattr(item, "fixturenames", ()):
        usual = (OSError, RuntimeError, subprocess.SubprocessError, pytest.skip.Exception)
        with contextlib.suppress(*usual):  # the test itself then fails, or is skipped
            build_core(torch_python())
    return (yield)


@pytest.fixture(scope="session")
def run_torch(vgpu_run: Run) -> RunTorch:
    """`run_torch("train.py", "cuda", ...)` runs a file of programs/ under `vgpu run`, or else the text of `code`."""

    def run(*command: str, code: str = "", timeout_s: float = 100, env: dict[str, str] | None = None, gpu: str = "h100",
            options: tuple[str, ...] = (), python: Path | None = None) -> CompletedProcess[str]:  # fmt: skip
        program = ["-c", code] if code else [str(PROGRAMS / command[0]), *command[1:]]
        python = python or torch_python()
        build_core(python)
        threads = {"OMP_NUM_THREADS": "1", **(env or {})}
        return vgpu_run([python, *program], gpu=gpu, env=threads, timeout_s=timeout_s, options=options)

    return run


def check_cases(result: CompletedProcess[str], least: int) -> None:
    """Check what a program of cases (programs/cases.py) printed: at least `least` lines, each of them ok."""
    lines = result.stdout.splitlines()
    failed = [line for line in lines if not line.startswith(("ok ", "ATen:"))]
    assert result.returncode == 0, "\n".join(failed) + result.stderr[-3000:]
    assert not failed
    assert len(lines) >= least
