"""A guest with a vsock device that vgpud provides: unmodified programs in it compute on the host's simulated GPU."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.test_pypi_clients import PROGRAMS, REQUIREMENTS
from tests.daemon.running import process_exists, wait_until
from tests.nvml.test_clients import NVITOP
from tests.patience import PATIENCE_S
from tests.programs.toolchain import Toolchain, cuda13
from tests.pypi import environment
from tests.vm.daemon import VGPU, VmDaemon, guest_env, vm_daemon
from tests.vm.guest import Guest, boot

DRIVER_CALLS = Path(__file__).parent / "programs/driver_calls.py"


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


def wait_worker(daemon: VmDaemon) -> int:
    """The pid of the only session's worker."""
    (session,) = wait_until(lambda: [s for s in daemon.running.status()["sessions"] if s["worker_pid"]])
    assert session["peer"] == "vm:one"
    return session["worker_pid"]


def assert_freed(daemon: VmDaemon, worker: int) -> None:
    wait_until(lambda: not process_exists(worker) and not daemon.running.status()["sessions"])


def start(guest: Guest, what: str, until: str) -> int:
    """Start a program in the background, wait until it has printed `until`, and return its pid."""
    line = guest.hosted_line([sys.executable, DRIVER_CALLS, what], guest_env())
    pid = int(guest.check(f"{line} > /tmp/{what} 2>&1 & echo $!"))
    guest.wait_until(f"grep -q '{until}' /tmp/{what}")
    return pid


def end_all(guest: Guest) -> None:
    """Kill every program that start() has started."""
    each = "for p in $(grep -l {} /proc/[0-9]*/cmdline); do kill -9 $(basename ${{p%/cmdline}}); done; true"
    guest.check(each.format(DRIVER_CALLS.name))


@pytest.mark.client
@pytest.mark.timeout(700)
def test_what_the_guest_runs_installs(toolchain: Toolchain) -> None:
    """A test of its own, so that no other test's time limit includes a download."""
    assert (toolchain.root / "bin/nvcc").exists()
    environment(*REQUIREMENTS["cuda_core"])
    environment(*NVITOP)


@pytest.mark.parametrize("program", ["saxpy", "reduction", "streams"])
def test_a_static_program_computes(guest: Guest, toolchain: Toolchain, program: str) -> None:
    outcome = guest.hosted([toolchain.build(program)], env=guest_env())
    assert outcome.status == 0, outcome.output
    assert re.search(rf"^ok {program}\b", outcome.output, re.MULTILINE), outcome.output


@pytest.mark.client
def test_cuda_core(guest: Guest) -> None:
    python = environment(*REQUIREMENTS["cuda_core"]) / "bin/python"
    outcome = guest.hosted([python, PROGRAMS / "with_cuda_core.py"], env=guest_env())
    assert "ok cuda_core" in outcome.output.splitlines(), outcome.output


@pytest.mark.client
def test_nvitop(guest: Guest) -> None:
    python = environment(*NVITOP) / "bin/python"
    outcome = guest.hosted([python, "-m", "nvitop", "-1", "--ascii"], env=guest_env())
    assert outcome.status == 0, outcome.output
    assert "H100 PCIe" in outcome.output
    assert "0B / 79.11GiB" in outcome.output


def test_doctor(guest: Guest) -> None:
    outcome = guest.hosted([*VGPU, "doctor", "--", sys.executable, "-c", "0"], env=guest_env())
    assert outcome.status == 0, outcome.output
    assert "vsock://2:7070" in outcome.output


def test_after_an_installation_programs_need_no_environment(guest: Guest, toolchain: Toolchain) -> None:
    program = toolchain.build("saxpy")
    assert "cudaErrorInsufficientDriver" in guest.hosted([program]).output
    paths = {"PYTHONPATH": guest_env()["PYTHONPATH"]}
    outcome = guest.hosted([*VGPU, "install", "--endpoint", "vsock://2:7070"], env=paths)
    assert outcome.status == 0, outcome.output
    outcome = guest.hosted([program])
    assert outcome.status == 0, outcome.output
    outcome = guest.hosted([*VGPU, "uninstall"], env=paths)
    assert outcome.status == 0, outcome.output
    assert "cudaErrorInsufficientDriver" in guest.hosted([program]).output


def test_the_kernels_vsock(guest: Guest) -> None:
    """A vgpud and the library in the same guest connect over the vsock loopback of a real kernel.

    The test ends after discovery: a worker on an emulated processor takes half a minute to start.
    """
    config = "listen = ['vsock://any:7070']\nadmin = ''\n[limits]\nspare_workers = 0\n"
    guest.check(f"cat > /root/tmp/inner.toml <<'END'\n{config}END")
    line = guest.hosted_line([sys.executable, "-m", "vgpud", "--config", "/tmp/inner.toml"], guest_env())
    pid = int(guest.check(f"{line} > /tmp/inner.log 2>&1 & echo $!"))
    guest.wait_until("grep -q ' ready ' /tmp/inner.log")
    assert "no VM of this host can connect there: modprobe vhost_vsock" in guest.check("cat /tmp/inner.log")
    ask = "import ctypes; c = ctypes.CDLL('libcuda.so.1'); n = ctypes.create_string_buffer(99); "
    ask += "print(c.cuInit(0), c.cuDeviceGetName(n, 99, 0), n.value)"
    outcome = guest.hosted([sys.executable, "-c", ask], env=guest_env("vsock://1:7070"))
    assert outcome.output == "0 0 b'NVIDIA H100 PCIe'\n", outcome.output
    assert "session opened peer=cid:1 " in guest.check("cat /tmp/inner.log")
    guest.check(f"kill {pid}")


def test_a_killed_program_frees_what_it_had(guest: Guest, daemon: VmDaemon) -> None:
    pid = start(guest, "allocate", "allocated")
    worker = wait_worker(daemon)
    guest.check(f"kill -9 {pid}")
    assert_freed(daemon, worker)


def test_a_forked_child_does_not_keep_the_session(guest: Guest, daemon: VmDaemon) -> None:
    pid = start(guest, "fork", "child: 3")
    worker = wait_worker(daemon)
    guest.check(f"kill -9 {pid}")  # the child survives
    assert_freed(daemon, worker)
    end_all(guest)


def test_a_guest_reset_while_a_kernel_runs(guest: Guest, daemon: VmDaemon, toolchain: Toolchain) -> None:
    start(guest, "spin", "launched")
    worker = wait_worker(daemon)
    guest.reset()
    assert_freed(daemon, worker)
    outcome = guest.hosted([toolchain.build("saxpy")], env=guest_env())
    assert outcome.status == 0, outcome.output


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_vgpud_is_restarted(guest: Guest, daemon: VmDaemon, toolchain: Toolchain, how: str) -> None:
    """The vsock device survives vgpud's restart, since QEMU would not set it up again; sessions end, new ones work."""
    start(guest, "allocate", "allocated")
    worker = wait_worker(daemon)
    getattr(daemon.running.process, how)()
    daemon.running.process.wait(PATIENCE_S)
    wait_until(lambda: not process_exists(worker))
    program = toolchain.build("saxpy")
    outcome = guest.hosted([program], env=guest_env())
    assert outcome.status == 1
    assert "cudaErrorSystemNotReady" in outcome.output
    daemon.start()
    daemon.running.wait_log("vm device found again")
    outcome = guest.hosted([program], env=guest_env())
    assert outcome.status == 0, outcome.output
    end_all(guest)
