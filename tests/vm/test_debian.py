"""A whole Debian under its own systemd: vgpud as its service, the guest package, and a vgpud on the host."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from vgpud.vm.snippet import Vm

from tests.programs.toolchain import cuda13
from tests.vm import debian
from tests.vm.daemon import VmDaemon, vm_daemon
from tests.vm.guest import Guest

ROOT = Path(__file__).resolve().parents[2]
MAKE_TIMEOUT_S = 400
SLOW_S = 240  # for what starts Python under TCG, on a busy machine
AS_A_SERVICE = "systemd-run --quiet --wait --pipe -p DynamicUser=yes"

pytestmark = pytest.mark.timeout(900)  # whoever is first waits for mmdebstrap, the packages and the boot


def package(kind: str, out: Path, *options: str) -> Path:
    """What `make packages` or `make bundle` makes."""
    command = [sys.executable, "-m", "deploy.packaging", "--out", out, kind, *options]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=MAKE_TIMEOUT_S)
    assert made.returncode == 0, made.stderr
    return out


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VmDaemon, Vm]]:
    """vgpud on the host, configured by `vgpu vm snippet`, and that VM."""
    socket = tmp_path_factory.mktemp("vm") / "made-by-vgpud" / "debian.sock"
    vm = Vm("qemu", "debian", 5, "vhost-user", "1024M", str(socket))
    with vm_daemon((), vm.part("vgpud")) as daemon:
        yield daemon, vm


@pytest.fixture(scope="module")
def guest(host: tuple[VmDaemon, Vm], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """Debian with the bundle in /opt/vgpu and the guest package at hand; not installed yet."""
    (bundle,) = package("bundle", tmp_path_factory.mktemp("b"), "--without-programs", "--folder").iterdir()
    (deb,) = package("guest", tmp_path_factory.mktemp("g")).glob("*.deb")
    files = {"/usr/local/bin/saxpy": cuda13().build("saxpy"), "/root/vgpu-guest.deb": deb}
    options = host[1].part("vm").split("\n", 1)[1].split()
    # The rig shares the memory of all its guests already.
    assert options[:4] == [
        "-object",
        "memory-backend-memfd,id=ram,size=1024M,share=on",
        "-machine",
        "memory-backend=ram",
    ]
    with ExitStack() as stack:
        yield stack.enter_context(debian.boot(devices=options[4:], files=files, folders={"/opt/vgpu": bundle}))


def journal(guest: Guest) -> str:
    return guest.run("journalctl -u vgpud --no-pager -o cat").output


def computes(guest: Guest) -> bool:
    outcome = guest.run(f"{AS_A_SERVICE} saxpy", SLOW_S)
    return re.search("^ok saxpy", outcome.output, re.MULTILINE) is not None


def test_the_system_comes_up_without_a_failed_unit(guest: Guest) -> None:
    state = guest.run("systemctl is-system-running --wait", 60).output
    assert state == "running\n", guest.run("systemctl --failed").output


def test_vgpud_runs_as_a_service(guest: Guest) -> None:
    guest.check(
        "mkdir -p /etc/vgpu && sed 's/^worker_start_timeout_s = .*/worker_start_timeout_s = 200.0/'"
        " /opt/vgpu/share/vgpu/vgpud.toml > /etc/vgpu/vgpud.toml"
        " && cp /opt/vgpu/share/vgpu/vgpud.service /etc/systemd/system/ && systemctl daemon-reload"
    )
    started = guest.run("systemctl enable --now vgpud", SLOW_S)  # Type=notify: it returns when vgpud is ready
    assert started.status == 0, started.output + journal(guest)
    assert guest.run("systemctl is-active vgpud").output == "active\n"
    uid = guest.check("stat -c %u /run/vgpu/vgpud.sock")
    assert int(uid) >= 61184, "a dynamic user's"


def test_the_package_installs_and_a_service_computes(guest: Guest) -> None:
    assert not computes(guest)
    guest.check("dpkg --install /root/vgpu-guest.deb", SLOW_S)
    assert computes(guest), journal(guest)
    assert "no seccomp" not in journal(guest)
    assert "not confined" not in journal(guest)


def test_reload_keeps_it_and_a_crash_brings_another(guest: Guest) -> None:
    before = guest.check("systemctl show -P MainPID vgpud")
    guest.check("systemctl reload vgpud")
    assert guest.check("systemctl show -P MainPID vgpud") == before
    guest.check("systemctl kill --kill-whom=main -s KILL vgpud")
    guest.wait_until(f"[ $(systemctl show -P MainPID vgpud) != {before.strip()} ] && systemctl is-active vgpud", SLOW_S)


def test_a_vms_device_is_a_unit_of_its_own(guest: Guest) -> None:
    guest.check("cp /opt/vgpu/share/vgpu/vgpud-vm@.service /etc/systemd/system/ && systemctl daemon-reload")
    vm = '[[vm]]\nname = "inner"\ncid = 9\nvsock = "/run/vgpu-vm/inner/vsock.sock"\n'
    guest.check(f"printf '{vm}' >> /etc/vgpu/vgpud.toml")
    started = guest.run("systemctl start vgpud-vm@inner", SLOW_S)
    log = guest.run("journalctl -u vgpud-vm@inner --no-pager -o cat").output
    assert started.status == 0, log
    assert "seccomp" not in log
    assert guest.check("stat -c %A /run/vgpu-vm/inner/vsock.sock") == "srw-rw----\n"
    guest.check("systemctl stop vgpud-vm@inner")


def test_a_wrong_configuration_is_said_once_and_not_tried_again(guest: Guest) -> None:
    guest.check("echo 'gpu = \"h100\"' > /etc/vgpu/vgpud.toml; systemctl reset-failed vgpud")
    assert guest.run("systemctl restart vgpud", SLOW_S).status != 0
    guest.wait_until("systemctl is-failed vgpud")
    assert "/etc/vgpu/vgpud.toml:1: gpu: unknown key" in journal(guest)
    assert guest.check("systemctl show -P NRestarts vgpud") == "0\n"


def test_through_vsock_the_hosts_vgpud_computes(guest: Guest, host: tuple[VmDaemon, Vm]) -> None:
    opened = host[0].running.status()["metrics"]["sessions_opened"]
    guest.check("echo 'endpoint = vsock://2:7070' > /etc/vgpu/guest.conf")
    assert computes(guest)
    assert host[0].running.status()["metrics"]["sessions_opened"] > opened
    assert "vm:debian" in host[0].running.log


def test_removing_the_package_takes_everything_back(guest: Guest) -> None:
    guest.check("dpkg --purge vgpu-guest", SLOW_S)
    left = guest.run("ls -d /usr/lib/vgpu /etc/ld.so.conf.d/*vgpu* /var/lib/vgpu").output
    assert all("No such file" in line for line in left.splitlines()), left
    assert not computes(guest)
