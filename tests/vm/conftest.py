"""The VM tests boot QEMU; where QEMU is not available, each test is skipped with the reason."""

import pytest

from tests.vm import packages


@pytest.fixture(scope="session", autouse=True)
def vm_parts() -> None:
    """QEMU, kernel and busybox, fetched once."""
    reason = packages.missing()
    if reason is not None:
        pytest.skip(reason)
    packages.qemu()
    packages.kernel()
    packages.busybox()
