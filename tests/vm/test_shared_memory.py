"""A guest with an ivshmem device and a PCI stub: its programs' calls and pinned memory lie in memory that guest and
host share, and its GPU is a PCI device at the address that CUDA and NVML name."""

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from vgpud.devices.inventory import load_inventory
from vgpud.vm import gpu_identity
from vgpud.vm.stub_process import start_stub

from tests.daemon.running import wait_until
from tests.patience import PATIENCE_S
from tests.programs.toolchain import Toolchain, cuda13
from tests.shim.client import PRELUDE
from tests.vm import packages
from tests.vm.daemon import LIBRARY, VGPU, VmDaemon, guest_env, vm_daemon
from tests.vm.guest import Guest, boot

MIB = 128
STUB, IVSHMEM = "0000:00:10.0", "0000:00:11.0"
BAR = f"/sys/bus/pci/devices/{IVSHMEM}/resource2"
SAYS = "shared memory with the host: 63 MiB"


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vgpu-vm-memory-", dir="/dev/shm") as name:
        yield Path(name) / "one"


@pytest.fixture(scope="module")
def daemon(memory: Path) -> Iterator[VmDaemon]:
    keys = f"ivshmem = '{memory}'\nivshmem_mib = {MIB}\nivshmem_sessions = 2\n"
    with vm_daemon(of_each=keys) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def guest(daemon: VmDaemon, memory: Path) -> Iterator[Guest]:
    said = subprocess.run([packages.qemu(), "--version"], capture_output=True, text=True, check=True).stdout
    if "version 7.2" not in said:
        pytest.skip(f"the PCI stub needs QEMU 7.2, which Debian 12 has; this is {said.splitlines()[0]}")
    (identity,) = gpu_identity.of_profiles(load_inventory("simulator", "h100", ""))
    stub, fd = start_stub(identity)
    devices = [
        *("-device", f"x-pci-proxy-dev,id=gpu0,fd={fd},addr=0x10"),
        *("-object", f"memory-backend-file,id=shared,mem-path={memory},size={MIB}M,share=on"),
        *("-device", "ivshmem-plain,memdev=shared,addr=0x11"),
    ]
    try:
        with boot(vsock=daemon.socket("one"), devices=devices, pass_fds=[fd]) as guest:
            yield guest
    finally:
        os.close(fd)
        assert stub.wait(PATIENCE_S) == 0  # the stub ends with its VM


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return cuda13()


def python(guest: Guest, program: str, *before: str, **env: str) -> str:
    """Run a Python program in the guest, after PRELUDE and the command `before`; return its output."""
    command = [*before, sys.executable, "-c", PRELUDE + textwrap.dedent(program)]
    outcome = guest.hosted(command, env=guest_env(VGPU_LOG="info", **env))
    assert outcome.status == 0, outcome.output
    return outcome.output


@pytest.mark.timeout(700)
def test_the_compiler_installs(toolchain: Toolchain) -> None:
    assert (toolchain.root / "bin/nvcc").exists()


@pytest.mark.parametrize("program", ["saxpy", "pinned", "threads"])
def test_a_static_program_computes_in_shared_memory(guest: Guest, toolchain: Toolchain, program: str) -> None:
    outcome = guest.hosted([toolchain.build(program)], env=guest_env(VGPU_LOG="info"))
    assert outcome.status == 0, outcome.output
    assert re.search(rf"^ok {program}\b", outcome.output, re.MULTILINE), outcome.output
    assert SAYS in outcome.output


def test_the_stub_is_the_card_and_its_address_is_cudas(guest: Guest) -> None:
    """Nothing is configured in the guest: the stub alone announces vgpud."""
    ids = guest.check(f"cd /sys/bus/pci/devices/{STUB} && cat vendor device class subsystem_vendor subsystem_device")
    assert ids.split() == ["0x10de", "0x2331", "0x030200", "0x10de", "0x1626"]
    assert guest.check(f"cat /sys/bus/pci/devices/{STUB}/max_link_speed").strip() == "32.0 GT/s PCIe"
    env = guest_env(VGPU_LOG="info")
    del env["VGPU_ENDPOINT"]
    program = f"""
    ok(cuda.cuInit(0))
    name, value = create_string_buffer(16), c_int()
    ok(cuda.cuDeviceGetPCIBusId(name, 16, 0))
    for attribute in (50, 33, 34):
        ok(cuda.cuDeviceGetAttribute(byref(value), attribute, 0))
        print(attribute, value.value)
    nvml = ctypes.CDLL({str(LIBRARY / "libnvidia-ml.so.1")!r})
    ok(nvml.nvmlInit_v2())
    handle, info = c_void_p(), create_string_buffer(256)
    ok(nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(handle)))
    ok(nvml.nvmlDeviceGetPciInfo_v3(handle, info))
    print(name.value.decode(), info.raw[36:68].rstrip(b"\\0").decode())
    """
    outcome = guest.hosted([sys.executable, "-c", PRELUDE + textwrap.dedent(program)], env=env)
    assert outcome.status == 0, outcome.output
    for line in ("50 0", "33 0", "34 16", f"{STUB} 00000000:00:10.0"):
        assert line in outcome.output.splitlines(), outcome.output
    assert "connected to vsock://2:7070" in outcome.output


COMPUTE = """
context()
n = 2_000_001
p, back = alloc(n), create_string_buffer(n)
ok(cuda.cuMemcpyHtoD_v2(p, b"v" * n, c_size_t(n)))
ok(cuda.cuMemsetD8_v2(p, ord("g"), c_size_t(1000)))
ok(cuda.cuMemcpyDtoH_v2(back, p, c_size_t(n)))
assert back.raw == b"g" * 1000 + b"v" * (n - 1000)
"""


def test_without_permission_everything_travels_on_the_socket(guest: Guest) -> None:
    nobody = ("/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    said = python(guest, COMPUTE, *nobody)
    assert f"no memory shared with the host: {BAR}: Permission denied" in said
    doctor = guest.hosted([*nobody, *VGPU, "doctor", "--json", "--", "/bin/true"], env=guest_env())
    assert f"though vgpud has some for this VM: {BAR}: Permission denied" in doctor.output, doctor.output
    guest.check(f"chmod 666 {BAR}")
    assert SAYS in python(guest, COMPUTE, *nobody)
    guest.check(f"chmod 600 {BAR}")


def test_without_the_device_everything_travels_on_the_socket(guest: Guest) -> None:
    assert SAYS not in python(guest, COMPUTE, VGPU_SHARED_MEMORY="off")
    guest.check(f"echo 1 > /sys/bus/pci/devices/{IVSHMEM}/remove")
    assert "this machine has no ivshmem device" in python(guest, COMPUTE)
    guest.check("echo 1 > /sys/bus/pci/rescan")
    guest.check(f"echo 1 > /sys/bus/pci/devices/{IVSHMEM}/enable")
    assert SAYS in python(guest, COMPUTE)


def test_two_sessions_have_ranges_of_their_own_and_a_third_sees_no_old_bytes(guest: Guest, daemon: VmDaemon) -> None:
    wait_until(lambda: not daemon.running.status()["sessions"])
    before = len(daemon.running.log)
    hold = PRELUDE + "context(); print('here', flush=True); time.sleep(1000)"
    line = guest.hosted_line([sys.executable, "-c", hold], guest_env())
    pids = [guest.check(f"{line} > /tmp/hold{i} 2>&1 & echo $!").strip() for i in range(2)]
    for i in range(2):
        guest.wait_until(f"grep -q here /tmp/hold{i}")
    given = re.findall(r'session attached .*memory="63 MiB at (0x[0-9a-f]+)"', daemon.running.log[before:])
    assert len(given) == 2
    first, second = sorted(int(offset, 16) for offset in given)
    assert second - first >= 63 << 20
    look = f"""
    import mmap
    memory = mmap.mmap(os.open({BAR!r}, os.O_RDWR), {MIB << 20})
    for offset in ({first}, {second}):
        if "write" in os.environ:
            memory[offset + (50 << 20) : offset + (50 << 20) + 6] = b"secret"
        else:
            assert not any(memory[offset + (50 << 20) : offset + (51 << 20)])
    assert memory[:8] == b"VGPUREGN"
    """
    python(guest, look, write="1")
    guest.check("kill -9 " + " ".join(pids))
    wait_until(lambda: not daemon.running.status()["sessions"])
    python(guest, look)
