"""CUDA graphs: operators are recorded, and run on the graph's own memory at each replay."""

import pytest

from tests.torch.conftest import RunTorch, check_cases

pytestmark = pytest.mark.client


def test_graphs(run_torch: RunTorch) -> None:
    check_cases(run_torch("graphs.py", timeout_s=250), 12)


def test_without_mapped_memory_they_are_refused_by_name(run_torch: RunTorch) -> None:
    """Where device memory does not reach the program's address space, a host function cannot compute on it."""
    code = """
import torch
x, g = torch.ones(3, device="cuda"), torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(g):
        x + 1
except NotImplementedError as error:
    print(error)
print((x + 1).tolist())
"""
    result = run_torch(code=code, env={"VGPU_TORCH_COPY": "1"})
    refusal = "vgpu: aten::add.Tensor with these tensors is not simulated in a CUDA graph (docs/pytorch.md)"
    assert result.stdout.splitlines() == [refusal, "[2.0, 2.0, 2.0]"], result.stderr
