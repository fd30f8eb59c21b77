"""Asynchronous operators (VGPU_TORCH=async), and device-side assertions (VGPU_TORCH_ASSERT=device)."""

import pytest

from tests.torch.conftest import RunTorch, check_cases

pytestmark = pytest.mark.client

ASYNC = {"VGPU_TORCH": "async"}


def test_what_is_not_synchronised_shows(run_torch: RunTorch) -> None:
    result = run_torch("order.py", env=ASYNC, timeout_s=250)
    check_cases(result, 7)
    assert "in stream order behind the program's back" in result.stderr


def test_a_training_ends_the_same(run_torch: RunTorch) -> None:
    later, now = (run_torch("train.py", "cuda", "mlp", "fused", env=env) for env in (ASYNC, {}))
    assert later.returncode == 0, later.stderr
    assert later.stdout == now.stdout
    assert len(now.stdout.splitlines()) > 10


BAD_INDEX = """
import torch
x = torch.ones(3, device="cuda")
def attempt(function):
    try:
        print(function())
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
attempt(lambda: tuple(x[torch.tensor([7, 1], device="cuda")].shape))
attempt(torch.cuda.synchronize)
attempt(lambda: x + 1)
"""


def test_a_bad_index_asserts_on_the_device(run_torch: RunTorch) -> None:
    """As on a GPU: the call returns, a later one raises, and the context is lost."""
    result = run_torch(code=BAD_INDEX, env={"VGPU_TORCH_ASSERT": "device"})
    sticky = "AcceleratorError CUDA error: device-side assert triggered"
    printed = [line for line in result.stdout.splitlines() if not line.startswith("ATen:")]
    assert printed == ["(2,)", sticky, sticky], result.stderr
    assert "Assertion `index 7 is out of bounds for dimension 0 with size 3` failed" in result.stdout + result.stderr


# By default the call itself raises; in the other modes the next synchronisation does.
MODES = [{}, {"VGPU_TORCH_ASSERT": "device"}, ASYNC]


@pytest.mark.parametrize("env", MODES, ids=["default", "device", "async"])
def test_what_a_gpu_asserts(run_torch: RunTorch, env: dict[str, str]) -> None:
    result = run_torch("assertions.py", env=env, timeout_s=250)
    rows = [line.split("\t") for line in result.stdout.splitlines() if "\t" in line]
    assert len(rows) >= 22, result.stderr
    for name, call, next_call in rows:
        at_once = (call in ("IndexError", "RuntimeError"), next_call == "-")
        later = (call == "-", next_call == "AcceleratorError")
        assert all(later if env else at_once), (name, call, next_call)


def test_a_bad_index_raises_at_once_by_default(run_torch: RunTorch) -> None:
    result = run_torch(code=BAD_INDEX)
    raised = "IndexError index 7 is out of bounds for dimension 0 with size 3"
    assert result.stdout.splitlines() == [raised, "None", "tensor([2., 2., 2.], device='cuda:0')"], result.stderr
