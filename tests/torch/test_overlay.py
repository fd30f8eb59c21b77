"""When the simulation of PyTorch is active, when it is not, and that it never breaks `import torch`."""

from pathlib import Path

import pytest

from tests.torch.conftest import RunTorch

pytestmark = pytest.mark.client

ADD = "import torch; x = torch.ones(3, device='cuda'); print((x + 1).tolist())"
NOTICE = "vgpu: PyTorch's CUDA operators run as ATen's CPU kernels"


@pytest.mark.parametrize("gpu", ["h100", "forward"])  # torch has no machine code for "forward", and warns of that
def test_one_line_says_what_is_simulated(run_torch: RunTorch, gpu: str) -> None:
    result = run_torch(code=ADD, gpu=gpu)
    assert result.stdout == "[2.0, 2.0, 2.0]\n", result.stderr
    assert [line.startswith(NOTICE) for line in result.stderr.splitlines()] == [True], result.stderr


def test_nothing_is_said_before_cuda_is_used(run_torch: RunTorch) -> None:
    result = run_torch(code="import torch; print(torch.ones(1).item())")
    assert (result.stdout, result.stderr) == ("1.0\n", "")


@pytest.mark.parametrize(
    ("options", "env"), [(("--no-torch",), {}), ((), {"VGPU_TORCH": "0"})], ids=["--no-torch", "VGPU_TORCH=0"]
)
def test_it_can_be_switched_off(run_torch: RunTorch, options: tuple[str, ...], env: dict[str, str]) -> None:
    result = run_torch(code=ADD, options=options, env=env)
    assert result.returncode != 0
    assert "no kernel image" in result.stderr
    assert NOTICE not in result.stderr


def test_without_a_compiler_torch_still_works(run_torch: RunTorch, tmp_path: Path) -> None:
    """If the core cannot be built, a message says so, and calls that need no kernel still work."""
    code = "import torch; x = torch.ones(3).cuda(); print(x.cpu().tolist(), torch.cuda.is_available())"
    result = run_torch(code=code, env={"XDG_CACHE_HOME": str(tmp_path), "CXX": "/bin/false"})
    assert result.stdout == "[1.0, 1.0, 1.0] True\n", result.stderr
    assert result.stderr.startswith("vgpu: PyTorch's kernels are not simulated: vgpu-torch's core could not be built")


def test_a_library_cache_of_someone_else_is_refused(run_torch: RunTorch, tmp_path: Path) -> None:
    (tmp_path / "vgpu-torch").mkdir(parents=True)
    (tmp_path / "vgpu-torch").chmod(0o777)
    result = run_torch(code=ADD, env={"XDG_CACHE_HOME": str(tmp_path)})
    assert "can be written by" in result.stderr
    assert "no kernel image" in result.stderr


def test_a_fault_of_the_package_does_not_break_the_import(run_torch: RunTorch) -> None:
    code = """
import sys
sys.modules["vgpu_torch.install"] = None
import torch
print("imported", torch.__version__)
"""
    result = run_torch(code=code)
    assert result.stdout.startswith("imported 2."), result.stderr
    assert result.stderr.startswith("vgpu: PyTorch is left as it is: ")
