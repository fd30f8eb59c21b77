"""Fixtures for the tests of the guest library."""

import textwrap
from pathlib import Path

import pytest

from tests.shim import client
from tests.shim.simulated import KERNELS, Simulate


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
