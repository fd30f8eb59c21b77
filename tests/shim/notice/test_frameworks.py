"""Wheels of PyTorch, CuPy and numba-cuda for a blocked user (cases G01, G04, G05). The tests need no GPU."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.pypi import SITE, environment
from tests.shim.notice.conftest import LINE, OURS, Installed, Machine

pytestmark = pytest.mark.client

TORCH = ("torch==2.14.1", "nvidia-cuda-runtime==13.0.96", "typing_extensions", "sympy", "mpmath")
TORCH += ("networkx", "jinja2", "markupsafe", "fsspec", "filelock")
CUPY = ("cupy-cuda13x==14.*", "nvidia-cuda-runtime==13.0.96")
NUMBA = (
    "numba-cuda==0.30.*",
    "cuda-bindings==13.*",
    "numpy",
    "nvidia-cuda-nvrtc==13.0.*",
    "nvidia-nvvm==13.0.*",
    "nvidia-cuda-runtime==13.0.*",
)
# torch's libraries need 3 GB of libraries at load time that they do not call without a device: libraries whose
# functions only trap replace them. For each: the pattern of its functions' names, and the names' version tag.
NOT_REACHED = {
    "libcublasLt.so.13": ("cublasLt", "libcublasLt.so.13"),
    "libcublas.so.13": ("cublas[A-Z]", "libcublas.so.13"),
    "libcudnn.so.9": ("cudnn", "libcudnn.so.9"),
    "libcufft.so.12": ("cufft", "libcufft.so.12"),
    "libcufile.so.0": ("cuFile", ""),
    "libcupti.so.13": ("cupti", "libcupti.so.13"),
    "libcurand.so.10": ("curand", ""),
    "libcusparseLt.so.0": ("cusparseLt", ""),
    "libcusparse.so.12": ("cusparse(?!Lt)", "libcusparse.so.12"),
    "libnccl.so.2": ("nccl", ""),
    "libnvrtc.so.13": ("nvrtc", "libnvrtc.so.13"),
    "libnvshmem_host.so.3": ("nvshmem", "NVSHMEM"),
}


@pytest.fixture(scope="module")
def not_reached(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of replacement libraries that define the names that torch's libraries leave undefined."""
    folder = tmp_path_factory.mktemp("not-reached")
    libraries = (environment(*TORCH, with_dependencies=False) / SITE / "torch/lib").glob("lib*.so")
    command = ["readelf", "-W", "--dyn-syms", *map(str, libraries)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    undefined = set(re.findall(r" UND ((?:cu|nv|nccl)\w+)", listing))
    for soname, (pattern, tag) in NOT_REACHED.items():
        names = sorted(name for name in undefined if re.match(pattern, name))
        (folder / "stand-in.c").write_text("".join(f"void {name}(void) {{ __builtin_trap(); }}\n" for name in names))
        (folder / "stand-in.map").write_text(f"{tag} {{ global: *; }};\n")
        named = [f"-Wl,-soname,{soname},--version-script={folder / 'stand-in.map'}", "-o", str(folder / soname)]
        subprocess.run(["cc", "-shared", "-fPIC", "-nostdlib", str(folder / "stand-in.c"), *named], check=True)
    return folder


def python(requirements: tuple[str, ...], with_dependencies: bool = True) -> Path:
    return environment(*requirements, with_dependencies=with_dependencies) / "bin/python"


def torch() -> Path:
    return python(TORCH, with_dependencies=False)


def blocked(
    machine: Machine, interpreter: Path, program: str, libraries: list[Path], **env: str
) -> subprocess.CompletedProcess[str]:
    searched = Path(":".join(map(str, libraries)))
    return machine.run([interpreter, "-W", "ignore", "-c", program], searched, **env)


@pytest.mark.timeout(700)
@pytest.mark.parametrize("requirements", [TORCH, CUPY, NUMBA], ids=["torch", "cupy", "numba"])
def test_framework_installs(requirements: tuple[str, ...]) -> None:
    """A separate test, so that no other test's time includes a download."""
    assert python(requirements, with_dependencies=requirements is not TORCH).exists()


@pytest.mark.parametrize("front", [True, False], ids=["before-ours", "ours"])
def test_g01_torch_shows_it_once_and_raises_as_ever(
    before_ours: Installed, not_reached: Path, machine: Machine, front: bool
) -> None:
    program = "import torch\nfor _ in range(2):\n  try: torch.zeros(1).cuda()\n  except RuntimeError as e: print(e)"
    libraries = [before_ours.folder if front else OURS.parent, not_reached]
    done = blocked(machine, torch(), program, libraries)
    assert (done.returncode, done.stderr) == (0, LINE)
    assert done.stdout == "No CUDA GPUs are available\n" * 2


def test_g04_torch_probes(before_ours: Installed, not_reached: Path, machine: Machine) -> None:
    """Importing torch shows no notice. is_available calls the driver, which counts as asking for a GPU: one notice in a
    session. device_count and the NVML check do not call cuInit (G05).
    """
    program = """
import os, sys, torch
def say(what):
    print(what, file=sys.stderr, flush=True)
say(torch.cuda.device_count())
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
say(torch.cuda.is_available())
del os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"]
say(torch.cuda.is_available())
say(torch.cuda.is_available())
"""
    done = blocked(machine, torch(), program, [before_ours.folder, not_reached])
    assert (done.returncode, done.stderr) == (0, f"0\nFalse\n{LINE}False\nFalse\n")


def test_g04_torch_data_loader_with_eight_workers(
    before_ours: Installed, not_reached: Path, machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "loader.py").write_text(
        """
import torch
from torch.utils.data import DataLoader, Dataset

class Probing(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return int(torch.cuda.is_available()) + 1

print(sum(int(batch.sum()) for batch in DataLoader(Probing(), num_workers=8)))
"""
    )
    searched = Path(f"{before_ours.folder}:{not_reached}")
    done = machine.run([torch(), "-W", "ignore", tmp_path / "loader.py"], searched, PYTHONWARNINGS="ignore")
    assert (done.returncode, done.stdout, done.stderr) == (0, "16\n", LINE)


@pytest.mark.parametrize(("requirements", "module"), [(CUPY, "cupy"), (NUMBA, "numba.cuda")])
def test_g04_an_import_says_nothing(
    before_ours: Installed, machine: Machine, requirements: tuple[str, ...], module: str
) -> None:
    done = blocked(machine, python(requirements), f"import {module}", [before_ours.folder])
    assert (done.returncode, done.stderr) == (0, "")


def test_g01_cupy(before_ours: Installed, machine: Machine) -> None:
    program = "import cupy\ntry: cupy.zeros(3)\nexcept Exception as e: print(e)"
    done = blocked(machine, python(CUPY), program, [before_ours.folder])
    assert (done.returncode, done.stderr) == (0, LINE)
    assert done.stdout == "cudaErrorNoDevice: no CUDA-capable device is detected\n"


def test_g01_numba(before_ours: Installed, machine: Machine) -> None:
    program = (
        "from numba import cuda\nprint(cuda.is_available())\ntry: cuda.device_array(3)\nexcept Exception as e: print(e)"
    )
    done = blocked(machine, python(NUMBA), program, [before_ours.folder])
    assert (done.returncode, done.stderr) == (0, LINE)
    assert done.stdout.startswith("False\n")
    assert "CUDA_ERROR_NO_DEVICE" in done.stdout
