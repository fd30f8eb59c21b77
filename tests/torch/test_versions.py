"""Other minor versions of torch: their tables, and a training."""

import pytest

from tests.torch.conftest import OTHER_VERSIONS, RunTorch, torch_python
from tests.torch.test_op_db import check

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(1800), pytest.mark.parametrize("version", OTHER_VERSIONS)]


def test_what_must_raise_does(run_torch: RunTorch, version: str) -> None:
    check(run_torch, "errors", timeout_s=900, python=torch_python(version))


def test_a_training_runs(run_torch: RunTorch, version: str) -> None:
    python = torch_python(version)
    cuda = run_torch("train.py", "cuda", "gpt", "fused", python=python, timeout_s=400)
    assert cuda.returncode == 0, cuda.stderr
    assert "is not known" not in cuda.stderr
    cpu = run_torch("train.py", "cpu", "gpt", "fused", python=python, timeout_s=400)
    assert cuda.stdout.splitlines()[:-1] == cpu.stdout.splitlines()[:-1]
