"""Fixtures for the tests of the guest library."""

import sys
import textwrap
from pathlib import Path

import pytest

from tests.shim.client import PRELUDE
from tests.shim.simulated import KERNELS, Run, Simulate


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the test's FakeDaemon listens."""
    return tmp_path / "s"


@pytest.fixture
def simulate(vgpu_run: Run) -> Simulate:
    """Run a program's text on the simulator; returns its standard output."""

    def run(program: str, **changes: str) -> str:
        text = PRELUDE + KERNELS + textwrap.dedent(program)
        done = vgpu_run([sys.executable, "-c", text], env=changes)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    return run
