"""Other minor versions of torch: op_db, the trainings, random numbers, NVRTC kernels, quantized tensors."""

from itertools import product

import pytest

from tests.torch.conftest import OTHER_VERSIONS, RunTorch, check_cases, torch_python
from tests.torch.test_op_db import Record, check
from tests.torch.test_random import CARD

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(1800), pytest.mark.parametrize("version", OTHER_VERSIONS)]


@pytest.mark.parametrize("mode", ["errors", "dtypes", "values"])
def test_torchs_table_of_operators(run_torch: RunTorch, record_property: Record, version: str, mode: str) -> None:
    record_property("counts", check(run_torch, mode, "float32", timeout_s=1700, python=torch_python(version)))


@pytest.mark.parametrize(("kind", "optimizer"), [*product(("mlp", "gpt"), ("foreach", "fused"))])
def test_a_training_runs(run_torch: RunTorch, version: str, kind: str, optimizer: str) -> None:
    python = torch_python(version)
    cuda = run_torch("train.py", "cuda", kind, optimizer, python=python, timeout_s=400)
    assert cuda.returncode == 0, cuda.stderr
    assert "is not known" not in cuda.stderr
    cpu = run_torch("train.py", "cpu", kind, optimizer, python=python, timeout_s=400)
    assert cuda.stdout.splitlines()[:-1] == cpu.stdout.splitlines()[:-1]


def test_the_numbers_of_an_h200(run_torch: RunTorch, version: str) -> None:
    python = torch_python(version)
    result = run_torch("random_numbers.py", str(CARD), "2", gpu="h200", python=python, timeout_s=400)
    assert "128 of 128 cases agree" in result.stdout, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("program", "cases"), [("nvrtc.py", ()), ("features.py", ("quantized",)), ("cuda_kernels.py", ())]
)
def test_cases_run(run_torch: RunTorch, version: str, program: str, cases: tuple[str, ...]) -> None:
    check_cases(run_torch(program, *cases, python=torch_python(version), timeout_s=400), 1)
