"""The rig itself: a stock kernel boots, runs commands, sees this host's files and can be reset."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm import packages
from tests.vm.guest import Guest, GuestError, boot


@pytest.fixture(scope="module")
def guest() -> Iterator[Guest]:
    with boot(may_reset=True) as guest:
        yield guest


def test_it_runs_debians_kernel(guest: Guest) -> None:
    assert guest.check("uname -r") == packages.kernel().release + "\n"


def test_status_and_output_of_a_command(guest: Guest) -> None:
    assert guest.run("echo one; echo two >&2; exit 7").output == "one\ntwo\n"
    assert guest.run("exit 7").status == 7
    assert guest.run("printf unfinished").output == "unfinished"


def test_a_command_that_hangs_is_killed(guest: Guest) -> None:
    assert guest.run("sleep 1000", timeout_s=1).status == 137
    assert guest.run("true").status == 0


def test_it_runs_this_hosts_python_and_may_write(guest: Guest, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_text("from the host")
    script = f"p = {str(given)!r}; print(open(p).read()); open(p, 'w').write('x'); print(open(p).read())"
    outcome = guest.hosted([sys.executable, "-c", script])
    assert outcome.output == "from the host\nx\n", outcome
    assert given.read_text() == "from the host"


def test_reset(guest: Guest) -> None:
    guest.check("touch /tmp/before")
    guest.reset()
    assert guest.run("test -e /tmp/before").status == 1
    assert guest.hosted(["/bin/true"]).status == 0


def test_a_guest_that_panics_is_an_error_not_a_hang() -> None:
    with boot(host_files=False) as guest, pytest.raises(GuestError, match="QEMU has ended"):
        guest.run("echo c > /proc/sysrq-trigger")
