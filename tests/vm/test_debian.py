"""A whole Debian under its own systemd: vgpud as its service, the guest package, and a vgpud on the host."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from vgpud.vm.snippet import Vm

from tests.packaging.test_first_hour import blocks
from tests.programs.toolchain import cuda13
from tests.vm import debian
from tests.vm.daemon import VmDaemon, vm_daemon
from tests.vm.guest import Guest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "docs/packages.md"
MAKE_TIMEOUT_S = 400
AS_A_SERVICE = "systemd-run --quiet --wait --pipe -p DynamicUser=yes"

pytestmark = pytest.mark.timeout(900)  # the first test waits for mmdebstrap, the packages and the boot


def package(kind: str, out: Path, *options: str) -> Path:
    """Make packages or the bundle, as `make packages` or `make bundle` does; return their folder."""
    command = [sys.executable, "-m", "deploy.packaging", "--out", out, kind, *options]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=MAKE_TIMEOUT_S)
    assert made.returncode == 0, made.stderr
    return out


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VmDaemon, Vm]]:
    """A vgpud on the host with the configuration that `vgpu vm snippet` prints for a VM, and that VM."""
    socket = tmp_path_factory.mktemp("vm") / "made-by-vgpud" / "debian.sock"
    vm = Vm("qemu", "debian", 5, "vhost-user", "1024M", str(socket))
    with vm_daemon((), vm.part("vgpud")) as daemon:
        yield daemon, vm


@pytest.fixture(scope="module")
def guest(host: tuple[VmDaemon, Vm], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """Debian with the bundle in /opt/vgpu and the guest package in /root, not installed yet."""
    (bundle,) = package("bundle", tmp_path_factory.mktemp("b"), "--without-programs", "--folder").iterdir()
    (deb,) = package("guest", tmp_path_factory.mktemp("g")).glob("*.deb")
    files = {"/usr/local/bin/saxpy": cuda13().build("saxpy"), "/root/vgpu-guest.deb": deb}
    files["/usr/local/lib/counting.py"] = Path(__file__).parent / "programs/counting.py"
    options = host[1].part("vm").split("\n", 1)[1].split()
    # boot() shares the memory of every guest already, so these options are left out.
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
    outcome = guest.run(f"{AS_A_SERVICE} saxpy")
    return re.search("^ok saxpy", outcome.output, re.MULTILINE) is not None


def install(guest: Guest) -> None:
    if guest.run("dpkg-query -W vgpu-guest").status != 0:
        guest.check("dpkg --install /root/vgpu-guest.deb")


@pytest.fixture
def service(guest: Guest) -> Guest:
    """The guest with vgpud as a running service, whatever earlier tests did to it; correct files are kept."""
    guest.check(
        "mkdir -p /etc/vgpu && sed 's/^worker_start_timeout_s = .*/worker_start_timeout_s = 200.0/'"
        " /opt/vgpu/share/vgpu/vgpud.toml > /etc/vgpu/vgpud.toml.new"
        " && cd /etc/vgpu && { cmp -s vgpud.toml.new vgpud.toml || mv vgpud.toml.new vgpud.toml; }"
    )
    guest.check(
        "[ -e /etc/systemd/system/vgpud.service ]"
        " || { cp /opt/vgpu/share/vgpu/vgpud.service /etc/systemd/system/ && systemctl daemon-reload; }"
    )
    guest.run("systemctl reset-failed vgpud")
    started = guest.run("systemctl enable --now vgpud")  # Type=notify: it returns when vgpud is ready
    assert started.status == 0, started.output + journal(guest)
    return guest


@pytest.fixture
def client(guest: Guest) -> Guest:
    """The guest with its package installed and no endpoint configured: the library finds one."""
    install(guest)
    guest.check("rm -f /etc/vgpu/guest.conf")
    return guest


def test_the_system_comes_up_without_a_failed_unit(guest: Guest) -> None:
    state = guest.run("systemctl is-system-running --wait", 60).output
    assert state == "running\n", guest.run("systemctl --failed").output


def test_vgpud_runs_as_a_service(service: Guest) -> None:
    assert service.run("systemctl is-active vgpud").output == "active\n"
    uid = service.check("stat -c %u /run/vgpu/vgpud.sock")
    assert int(uid) >= 61184, "a dynamic user's"


def test_the_package_installs_and_a_service_computes(service: Guest) -> None:
    service.run("dpkg --purge vgpu-guest")
    assert not computes(service)
    install(service)
    assert computes(service), journal(service)
    assert "no seccomp" not in journal(service)
    assert "not confined" not in journal(service)


def test_a_worker_has_a_control_group_of_its_own(service: Guest) -> None:
    """systemd delegates the unit's control group, and the kernel accepts what vgpud writes there."""
    assert "no control groups" not in journal(service)
    program = (
        "import json, subprocess; from pathlib import Path; from vgpud.cli.client import Client;"
        "from vgpud.endpoint import parse_endpoint;"
        "client = Client(parse_endpoint('unix:/run/vgpu/vgpud.sock'), timeout_s=200); client.hello(); client.attach();"
        "[one] = json.loads(subprocess.run(['/opt/vgpu/bin/vgpu', 'ps', '--json'], capture_output=True).stdout);"
        "group = Path('/proc', str(one['worker_pid']), 'cgroup').read_text().strip().split('::')[1];"
        "files = [Path('/sys/fs/cgroup' + group, name) for name in ('pids.max', '../cpu.weight')];"
        "print(group, *(file.read_text().strip() for file in files))"
    )
    environment = "PYTHONPATH=/opt/vgpu/python/site"
    said = service.check(f'{environment} /opt/vgpu/python/bin/python3 -c "{program}"')
    assert re.fullmatch(r"/system\.slice/vgpud\.service/tenant-[0-9a-f]{16}/session-\d+ 4096 100\n", said), said
    service.wait_until('[ -z "$(ls -d /sys/fs/cgroup/system.slice/vgpud.service/tenant-*)" ]')


def test_GP6_the_first_client_starts_vgpud(service: Guest) -> None:
    """`systemctl enable --now vgpud.socket`, as packages.md prints it, under systemd."""
    command = next(line for line in blocks(PACKAGES.read_text())["host-deb"].splitlines() if "vgpud.socket" in line)
    install(service)
    service.check("systemctl disable --now vgpud")
    service.check("cp /opt/vgpu/share/vgpu/vgpud.socket /etc/systemd/system/ && systemctl daemon-reload")
    try:
        service.check(command)
        states = service.run("systemctl is-active vgpud.socket vgpud").output
        assert states == "active\ninactive\n"
        service.run(f"{AS_A_SERVICE} saxpy")  # may fail: under TCG vgpud starts too slowly for this client
        service.wait_until("systemctl is-active vgpud")
        assert computes(service), journal(service)
    finally:
        service.check("systemctl disable --now vgpud.socket && rm /etc/systemd/system/vgpud.socket")
        service.check("systemctl daemon-reload")


def test_reload_keeps_it_and_a_crash_brings_another(service: Guest) -> None:
    """The program at work when vgpud is killed goes on, and its session is the next vgpud's."""
    before = service.check("systemctl show -P MainPID vgpud")
    service.check("systemctl reload vgpud")
    assert service.check("systemctl show -P MainPID vgpud") == before
    install(service)
    # Sessions of earlier tests must have left: counting.py waits until one is stored, which must be its own.
    service.wait_until('[ -z "$(ls -d /sys/fs/cgroup/system.slice/vgpud.service/tenant-*)" ]')
    service.wait_until("/opt/vgpu/bin/vgpu status --json | grep -q '\"sessions_stored\": 0,'")
    service.run("/usr/bin/python3 /usr/local/lib/counting.py > /run/counting.log 2>&1 < /dev/null &")
    service.wait_until("[ -e /run/counting ]")
    worker = service.check("cat /sys/fs/cgroup/system.slice/vgpud.service/tenant-*/session-*/cgroup.procs")
    service.check("systemctl kill --kill-whom=main -s KILL vgpud")
    service.wait_until(f"[ $(systemctl show -P MainPID vgpud) != {before.strip()} ] && systemctl is-active vgpud")
    assert "a vgpud before this one crashed" in journal(service)
    service.check("rm /run/counting")
    service.wait_until("[ -e /run/counting ]")
    group = "/sys/fs/cgroup/system.slice/vgpud.service/tenant-*/session-*"
    assert service.check(f"cat {group}/cgroup.procs {group}/pids.max") == f"{worker}4096\n"
    service.check("touch /run/enough")
    service.wait_until(f'[ -z "$(ls -d {group})" ]')
    assert service.check("cat /run/counting.log") == "right\n"


def test_a_vms_device_is_a_unit_of_its_own(service: Guest) -> None:
    service.check("cp /opt/vgpu/share/vgpu/vgpud-vm@.service /etc/systemd/system/ && systemctl daemon-reload")
    vm = '[[vm]]\nname = "inner"\ncid = 9\nvsock = "/run/vgpu-vm/inner/vsock.sock"\n'
    service.check(f"printf '{vm}' >> /etc/vgpu/vgpud.toml")
    started = service.run("systemctl start vgpud-vm@inner")
    log = service.run("journalctl -u vgpud-vm@inner --no-pager -o cat").output
    assert started.status == 0, log
    assert "seccomp" not in log
    assert service.check("stat -c %A /run/vgpu-vm/inner/vsock.sock") == "srw-rw----\n"
    service.check("systemctl stop vgpud-vm@inner")


def test_a_wrong_configuration_is_said_once_and_not_tried_again(service: Guest) -> None:
    service.check("echo 'gpu = \"h100\"' > /etc/vgpu/vgpud.toml; systemctl reset-failed vgpud")
    assert service.run("systemctl restart vgpud").status != 0
    service.wait_until("systemctl is-failed vgpud")
    assert "/etc/vgpu/vgpud.toml:1: gpu: unknown key" in journal(service)
    assert service.check("systemctl show -P NRestarts vgpud") == "0\n"


def test_through_vsock_the_hosts_vgpud_computes(client: Guest, host: tuple[VmDaemon, Vm]) -> None:
    opened = host[0].running.status()["metrics"]["sessions_opened"]
    client.check("echo 'endpoint = vsock://2:7070' > /etc/vgpu/guest.conf")
    assert computes(client)
    assert host[0].running.status()["metrics"]["sessions_opened"] > opened
    assert "vm:debian" in host[0].running.log


def test_removing_the_package_takes_everything_back(client: Guest) -> None:
    client.check("dpkg --purge vgpu-guest")
    left = client.run("ls -d /usr/lib/vgpu /etc/ld.so.conf.d/*vgpu* /var/lib/vgpu").output
    assert all("No such file" in line for line in left.splitlines()), left
    assert not computes(client)
