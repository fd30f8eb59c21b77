"""Capture and graphs over the cuda backend: the simulator's tests, asked of the relay."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from tests.relayed.conftest import Relay
from tests.shim import test_graph, test_graph_work
from tests.shim.client import PRELUDE
from tests.shim.test_driver_api import KERNELS


@pytest.fixture
def simulate(relay: Relay) -> Callable[..., str]:
    def run(program: str, **changes: str) -> str:
        return relay.python(PRELUDE + KERNELS + textwrap.dedent(program), **changes)

    return run


ASKED = {
    name: test
    for module in (test_graph, test_graph_work)
    for name, test in vars(module).items()
    if name.startswith("test_")
}
globals().update(ASKED)
