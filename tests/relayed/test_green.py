"""Green contexts over the cuda backend: the simulator's tests, run through the relay."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from tests.relayed.conftest import Relay
from tests.shim import test_green
from tests.shim.client import PRELUDE
from tests.shim.simulated import KERNELS


@pytest.fixture
def simulate(relays: Callable[[bool], Relay]) -> Callable[..., str]:
    def run(program: str, **changes: str) -> str:
        return relays(True).python(PRELUDE + KERNELS + textwrap.dedent(program), **changes)

    return run


globals().update({name: test for name, test in vars(test_green).items() if name.startswith("test_")})
