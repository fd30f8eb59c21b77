"""What the tests of the guest library share."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the test's FakeDaemon listens."""
    return tmp_path / "s"
