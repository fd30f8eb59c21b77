"""Wrong calls over the cuda backend get the answers that an H100 gave."""

from __future__ import annotations

import pytest

from tests.relayed.conftest import Relay
from tests.shim.test_oracle import test_life_after_a_fault, test_wrong_calls, toolchain

__all__ = ["test_life_after_a_fault", "test_wrong_calls", "toolchain"]


@pytest.fixture
def vgpu_run(shared_relay: Relay) -> Relay:
    return shared_relay
