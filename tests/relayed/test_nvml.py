"""NVML calls of guests are answered by the host's NVML: a guest of the relay gets the same answers as the host."""

from __future__ import annotations

import sys

from tests.conftest import merged, run_command
from tests.daemon.running import Running
from tests.relayed.conftest import LIBRARIES, Relay

PROGRAM = f"""
import ctypes
from ctypes import byref, c_uint, c_void_p, create_string_buffer
nvml = ctypes.CDLL({str(LIBRARIES / "libnvidia-ml.so.1")!r})
assert nvml.nvmlInit_v2() == 0
device = c_void_p()
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(device)) == 0
for name in "Name", "UUID", "VbiosVersion":
    text = create_string_buffer(96)
    print(name, getattr(nvml, "nvmlDeviceGet" + name)(device, text, 96), text.value)
for name in "EnforcedPowerLimit", "NumGpuCores", "MemoryBusWidth", "Temperature", "PersistenceMode":
    number, kind = c_uint(), [0] if name == "Temperature" else []
    print(name, getattr(nvml, "nvmlDeviceGet" + name)(device, *kind, byref(number)), number.value)
memory = (ctypes.c_uint64 * 3)()
print("total", nvml.nvmlDeviceGetMemoryInfo(device, memory), memory[0])
"""


def test_a_guest_hears_what_the_host_does(driver: Running, shared_relay: Relay) -> None:
    host = run_command([sys.executable, "-c", PROGRAM], merged({"VGPU_ENDPOINT": str(driver.endpoint)}), 60)
    assert host.returncode == 0, host.stderr
    assert "Name 0 b'NVIDIA H100 PCIe'" in host.stdout
    assert "total 0 84" in host.stdout
    assert shared_relay.python(PROGRAM) == host.stdout
