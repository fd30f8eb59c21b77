"""Two processes, each with a simulated device of its own: collectives, DDP and FSDP over gloo."""

import pytest

from tests.torch.conftest import RunTorch, check_cases

pytestmark = [pytest.mark.client, pytest.mark.timeout(300)]


def test_two_ranks(run_torch: RunTorch) -> None:
    check_cases(run_torch("distributed.py", gpu="h100:2", timeout_s=250), 3)
