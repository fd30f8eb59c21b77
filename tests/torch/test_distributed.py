"""Two processes, each with a simulated device of its own: collectives, DDP and FSDP over gloo, and DDP over NCCL."""

import pytest

from tests.ecosystem.requirements import NCCL
from tests.pypi import SITE, environment
from tests.torch.conftest import RunTorch, check_cases


@pytest.mark.client
def test_two_ranks(run_torch: RunTorch) -> None:
    check_cases(run_torch("distributed.py", gpu="h100:2", timeout_s=250), 3)


@pytest.mark.ecosystem
@pytest.mark.timeout(1800)
def test_two_ranks_over_nccl(run_torch: RunTorch) -> None:
    """NVIDIA's library is preloaded, for the tests' small environment has a placeholder."""
    library = environment(*NCCL) / SITE / "nvidia/nccl/lib/libnccl.so.2"
    check_cases(run_torch("over_nccl.py", gpu="forward:2", env={"LD_PRELOAD": str(library)}, timeout_s=1700), 4)
