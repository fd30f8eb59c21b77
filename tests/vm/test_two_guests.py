"""Two VMs of one vgpud: each sees its own processes alone, and what one does to its device does not reach the other."""

import sys
from collections.abc import Iterator

import pytest

from tests.daemon.running import wait_until
from tests.vm.daemon import VGPU, VmDaemon, guest_env, vm_daemon
from tests.vm.guest import Guest, boot
from tests.vm.test_vsock import start


@pytest.fixture(scope="module")
def daemon() -> Iterator[VmDaemon]:
    with vm_daemon(["one", "two"]) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def guests(daemon: VmDaemon) -> Iterator[tuple[Guest, Guest]]:
    with boot(vsock=daemon.socket("one")) as one, boot(vsock=daemon.socket("two")) as two:
        yield one, two


def test_they_do_not_see_each_other(guests: tuple[Guest, Guest], daemon: VmDaemon) -> None:
    for guest in guests:
        start(guest, "allocate", "allocated")
    sessions = wait_until(lambda: (s := daemon.running.status()["sessions"]) and len(s) == 2 and s)
    assert {session["peer"] for session in sessions} == {"vm:one", "vm:two"}
    for guest in guests:
        outcome = guest.hosted([*VGPU, "smi"], env=guest_env())
        assert outcome.status == 0, outcome.output
        shown = [line for line in outcome.output.splitlines() if "MiB |" in line and " C " in line]
        assert len(shown) == 1, outcome.output


def test_their_guests_cannot_reach_each_other(guests: tuple[Guest, Guest]) -> None:
    """The vsock device connects a guest to one peer only, the host, and there to one port."""
    one, _ = guests
    reach = "import socket; s = socket.socket(socket.AF_VSOCK); s.settimeout(5); "
    for cid, port in ((4, 7070), (2, 22), (2, 7071)):
        outcome = one.hosted([sys.executable, "-c", f"{reach}print('errno', s.connect_ex(({cid}, {port})))"])
        assert "errno 0\n" not in outcome.output, (cid, port, outcome)


def test_one_ends_and_the_other_goes_on(guests: tuple[Guest, Guest], daemon: VmDaemon) -> None:
    one, two = guests
    one.end()
    wait_until(lambda: [s["peer"] for s in daemon.running.status()["sessions"]] == ["vm:two"])
    daemon.running.wait_log("vm disconnected")
    outcome = two.hosted([*VGPU, "ping", "--count", "5"], env=guest_env())
    assert outcome.status == 0, outcome.output
