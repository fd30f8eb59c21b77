"""A guest's PCI stubs give the devices their addresses, in libcuda and NVML alike. These tests mount a fake list of PCI
devices in the program's own mount namespace; tests/vm uses the /sys of real guests."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.running import Running
from tests.shim.client import LIBRARY, PRELUDE, environment

SYS = Path("/sys/bus/pci/devices")

PROGRAM = """
def text(index):
    name = create_string_buffer(16)
    result = cuda.cuDeviceGetPCIBusId(name, 16, index)
    return name.value.decode() if not result else result
def attributes(index):
    value, values = c_int(), []
    for attribute in (50, 33, 34):
        ok(cuda.cuDeviceGetAttribute(byref(value), attribute, index))
        values.append(value.value)
    return values
result = cuda.cuInit(0)
if result:
    sys.exit(f"cuInit {result}")
print(text(0), attributes(0), text(1), attributes(1))
device = c_int()
print(cuda.cuDeviceGetByPCIBusId(byref(device), text(0).encode()), device.value)
class Pci(ctypes.Structure):
    _fields_ = [("legacy", ctypes.c_char * 16), ("domain", c_uint), ("bus", c_uint), ("device", c_uint),
                ("id", c_uint), ("subsystem", c_uint), ("bus_id", ctypes.c_char * 32)]
nvml = ctypes.CDLL(NVML)
ok(nvml.nvmlInit_v2())
handle, info = c_void_p(), Pci()
ok(nvml.nvmlDeviceGetHandleByPciBusId_v2(text(0).encode(), byref(handle)))
ok(nvml.nvmlDeviceGetPciInfo_v3(handle, byref(info)))
print(info.bus_id.decode(), info.domain, info.bus, info.device, hex(info.id))
"""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("stub")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    config = directory / "vgpud.toml"
    config.write_text(
        f"listen = ['tcp://127.0.0.1:{port}', 'unix:{directory}/s']\ngpus = 'h100,t4'\nadmin = ''\n"
        f"cache_dir = '{directory}'\n"
    )
    running = Running.start(config, directory, "log")
    running.wait_ready()
    yield f"tcp://127.0.0.1:{port} unix:{directory}/s"
    running.end()


def pci(directory: Path, address: str, vendor: str, kind: str, *, driver: bool = False) -> None:
    (directory / address).mkdir(parents=True)
    (directory / address / "vendor").write_text(vendor + "\n")
    (directory / address / "class").write_text(kind + "\n")
    if driver:
        (directory / address / "driver").symlink_to("../somewhere")


def run(devices: Path, url: str) -> str:
    if not SYS.is_dir():
        pytest.skip("this machine shows no PCI devices: /sys/bus/pci is missing")
    unshare = shutil.which("unshare")
    if not unshare or subprocess.run([unshare, "-Urm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace can be made here (unshare -Urm)")
    nvml = LIBRARY.with_name("libnvidia-ml.so.1")
    program = PRELUDE + f"NVML = {str(nvml)!r}\n" + textwrap.dedent(PROGRAM)
    script = 'mount --bind "$1" /sys/bus/pci/devices && exec "$2" -c "$3"'
    done = subprocess.run(
        [unshare, "-Urm", "sh", "-c", script, "sh", str(devices), sys.executable, program],
        env=environment(url),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def test_stubs_give_devices_their_addresses_in_order(endpoint: str, tmp_path: Path) -> None:
    pci(tmp_path, "0000:00:1f.2", "0x8086", "0x010601")
    pci(tmp_path, "0001:0a:00.0", "0x10de", "0x030200")
    pci(tmp_path, "0000:00:05.0", "0x10de", "0x030200")
    pci(tmp_path, "0000:00:03.0", "0x10de", "0x040300")  # an audio device
    pci(tmp_path, "0000:00:04.0", "0x10de", "0x030000", driver=True)  # a card that a driver uses
    assert run(tmp_path, endpoint.split()[0]).splitlines() == [
        "0000:00:05.0 [0, 0, 5] 0001:0a:00.0 [1, 10, 0]",
        "0 0",
        "00000000:00:05.0 0 0 5 0x233110de",
    ]


def test_devices_without_a_stub_keep_the_hosts_addresses(endpoint: str, tmp_path: Path) -> None:
    pci(tmp_path, "0000:00:05.0", "0x10de", "0x030200")
    first, *_ = run(tmp_path, endpoint.split()[0]).splitlines()
    assert first.startswith("0000:00:05.0 [0, 0, 5] 0000:02:00.0 [0, 2, 0]"), first


def test_a_daemon_of_this_machine_knows_better(endpoint: str, tmp_path: Path) -> None:
    pci(tmp_path, "0000:00:05.0", "0x10de", "0x030200")
    first, *_ = run(tmp_path, endpoint.split()[1]).splitlines()
    assert first.startswith("0000:01:00.0 "), first
