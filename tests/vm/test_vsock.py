"""A guest whose vsock device vgpud is: programs in it compute on the host's simulated GPU."""

import re
import sys
from collections.abc import Iterator

import pytest

from tests.daemon.running import wait_until
from tests.programs.toolchain import Toolchain, cuda13
from tests.vm.daemon import VGPU, VmDaemon, guest_env, vm_daemon
from tests.vm.guest import Guest, boot


@pytest.fixture(scope="module")
def daemon() -> Iterator[VmDaemon]:
    with vm_daemon() as daemon:
        yield daemon


@pytest.fixture(scope="module")
def guest(daemon: VmDaemon) -> Iterator[Guest]:
    with boot(vsock=daemon.socket("one"), may_reset=True) as guest:
        yield guest


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return cuda13()


def sessions(daemon: VmDaemon) -> list[dict[str, object]]:
    return daemon.running.status()["sessions"]


@pytest.mark.timeout(700)
def test_the_compiler_installs(toolchain: Toolchain) -> None:
    assert (toolchain.root / "bin/nvcc").exists()


@pytest.mark.parametrize("program", ["saxpy", "reduction", "streams"])
def test_a_static_program_computes(guest: Guest, toolchain: Toolchain, program: str) -> None:
    outcome = guest.hosted([toolchain.build(program)], env=guest_env())
    assert outcome.status == 0, outcome.output
    assert re.search(rf"^ok {program}\b", outcome.output, re.MULTILINE), outcome.output


def test_the_peer_is_the_configured_vm(guest: Guest, daemon: VmDaemon) -> None:
    hold = "from vgpud.client import Client; from vgpud.endpoint import parse_endpoint; import time; "
    hold += "c = Client(parse_endpoint('vsock://2:7070')); c.hello(); c.attach(); time.sleep(1000)"
    pid = guest.check(guest.hosted_line([sys.executable, "-c", hold], guest_env()) + " > /tmp/hold 2>&1 & echo $!")
    (session,) = wait_until(lambda: [s for s in sessions(daemon) if s["worker_pid"]], 20)
    assert session["peer"] == "vm:one"
    guest.check(f"kill -9 {pid.strip()}")
    wait_until(lambda: not sessions(daemon), 20)  # its worker is gone: the guest's kernel closed the stream


def test_ping_from_the_guest(guest: Guest) -> None:
    outcome = guest.hosted([*VGPU, "ping", "--count", "20"], env=guest_env())
    assert outcome.status == 0, outcome.output
    assert "20 round trips to vsock://2:7070" in outcome.output
