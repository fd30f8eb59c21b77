"""Kernels that are generated at run time: NVRTC's, Triton's and Inductor's. The simulator runs their PTX."""

from pathlib import Path

import pytest

from tests.pypi import packages
from tests.torch.conftest import RunTorch, check_cases


@pytest.mark.parametrize("gpu", ["h100", "forward"])
def test_kernels_that_nvrtc_compiles(run_torch: RunTorch, tmp_path: Path, gpu: str) -> None:
    cache = {"PYTORCH_KERNEL_CACHE_PATH": str(tmp_path)}
    check_cases(run_torch("nvrtc.py", gpu=gpu, env=cache, timeout_s=200), 3)


@pytest.mark.ecosystem
@pytest.mark.timeout(1200)
def test_generated_kernels(run_torch: RunTorch, tmp_path: Path) -> None:
    own = {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    path = {"PYTHONPATH": str(packages("triton==3.8.*"))}
    check_cases(run_torch("generated.py", gpu="a100", env={**own, **path}, timeout_s=1000), 4)
