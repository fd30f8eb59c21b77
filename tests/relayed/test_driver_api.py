"""Driver functions that move data, over the cuda backend: the simulator's tests, run through the relay."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from tests.relayed.conftest import Relay
from tests.shim import test_copies, test_driver_api, test_external, test_settings
from tests.shim.client import PRELUDE
from tests.shim.simulated import KERNELS


@pytest.fixture
def simulate(shared_relay: Relay) -> Callable[..., str]:
    def run(program: str, **changes: str) -> str:
        return shared_relay.python(PRELUDE + KERNELS + textwrap.dedent(program), **changes)

    return run


BEYOND_THE_RELAY = {
    "test_untyped_copies_and_pointer_kinds",  # a kernel reads pinned memory
    "test_a_launch_on_two_devices",  # it starts a `vgpu run` of its own
    "test_p03_a_killed_worker_is_survived",  # kills the workers of a `vgpu run`
}
ASKED = {
    name: test
    for module in (test_driver_api, test_copies, test_external, test_settings)
    for name, test in vars(module).items()
    if name.startswith("test_")
}
globals().update({name: test for name, test in ASKED.items() if name not in BEYOND_THE_RELAY})
