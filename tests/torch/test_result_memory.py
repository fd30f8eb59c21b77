"""Results that the CPU's kernels write to device memory directly: values, statistics and errors of repeated calls."""

import pytest

from tests.torch.conftest import RunTorch, check_cases


@pytest.mark.client
@pytest.mark.parametrize("copies", ["0", "1"], ids=["mapped", "copied"])
def test_the_same_call_again(run_torch: RunTorch, copies: str) -> None:
    check_cases(run_torch("result_memory.py", env={"VGPU_TORCH_COPY": copies}, timeout_s=250), 7)
