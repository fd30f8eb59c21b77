"""A vsock device's process, and the test's side of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.vm.driver import Driver


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Driver]:
    """A device that no VMM is connected to yet. It must outlive the test, and end when its connections are closed."""
    driver = Driver(tmp_path)
    yield driver
    assert driver.process.poll() is None, driver.log_path.read_text()
    assert driver.close() == 0, driver.log_path.read_text()


@pytest.fixture
def driver(bare: Driver) -> Driver:
    """A device set up for a guest."""
    return bare.set_up()
