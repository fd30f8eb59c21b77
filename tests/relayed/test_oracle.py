"""What an H100 answered to wrong calls, asked of the cuda backend."""

from __future__ import annotations

import pytest

from tests.relayed.conftest import Relay
from tests.shim.test_oracle import test_life_after_a_fault, test_wrong_calls, toolchain

__all__ = ["test_life_after_a_fault", "test_wrong_calls", "toolchain"]


@pytest.fixture
def vgpu_run(shared_relay: Relay) -> Relay:
    return shared_relay
