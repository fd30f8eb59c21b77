"""A whole Debian under its own systemd."""

from collections.abc import Iterator

import pytest

from tests.vm import debian
from tests.vm.guest import Guest


@pytest.fixture(scope="module")
def guest() -> Iterator[Guest]:
    with debian.boot() as guest:
        yield guest


@pytest.mark.timeout(600)  # the first test waits for mmdebstrap and the boot
def test_the_system_comes_up_without_a_failed_unit(guest: Guest) -> None:
    state = guest.run("systemctl is-system-running --wait", 60).output
    assert state == "running\n", guest.run("systemctl --failed").output
