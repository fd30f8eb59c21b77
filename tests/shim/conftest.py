"""Fixtures for the tests of the guest library."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shim import client
from tests.shim.simulated import KERNELS, Simulate
from tests.shim.spinning import TOOLS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the test's FakeDaemon listens."""
    return tmp_path / "s"


@pytest.fixture
def simulate(h100: str) -> Simulate:
    """Run a program's text on the simulator of the module's vgpud; returns its standard output."""

    def run(program: str, **changes: str) -> str:
        return client.run(h100, KERNELS + textwrap.dedent(program), **changes)

    return run


@pytest.fixture(params=["0", "50", "5000"], ids=["sleeping", "spinning", "spinning-long"])
def simulate_spinning(request: pytest.FixtureRequest, h100: str) -> Callable[[str], str]:
    """Run a program's text, after that of spinning.py, with each time for which the client's waits spin."""
    return lambda program: client.run(h100, TOOLS + textwrap.dedent(program), VGPU_SPIN_US=request.param)
