"""One identity: libcuda, libnvidia-ml and vgpud report the same facts about a device and its processes."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.conftest import VGPU, Run

TOLD = """
import ctypes, json, os, subprocess, sys, uuid
import pynvml as n

cu = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    assert cu[name](*arguments) == 0, name
call("cuInit", 0)
version = ctypes.c_int()
call("cuDriverGetVersion", ctypes.byref(version))
n.nvmlInit()
told = {"cuda_version": [version.value, n.nvmlSystemGetCudaDriverVersion_v2()], "devices": []}
count = ctypes.c_int()
call("cuDeviceGetCount", ctypes.byref(count))
assert count.value == n.nvmlDeviceGetCount()
for index in range(count.value):
    device, buffer, identity = ctypes.c_int(), ctypes.create_string_buffer(96), (ctypes.c_ubyte * 16)()
    total, major, minor = ctypes.c_size_t(), ctypes.c_int(), ctypes.c_int()
    call("cuDeviceGet", ctypes.byref(device), index)
    call("cuDeviceGetName", buffer, 96, device)
    name = buffer.value.decode()
    call("cuDeviceGetUuid_v2", identity, device)
    call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
    call("cuDeviceComputeCapability", ctypes.byref(major), ctypes.byref(minor), device)
    call("cuDeviceGetPCIBusId", buffer, 96, device)
    cuda = [name, "GPU-" + str(uuid.UUID(bytes=bytes(identity))), buffer.value.decode().lower(), total.value,
            f"{major.value}.{minor.value}"]
    handle = n.nvmlDeviceGetHandleByPciBusId(buffer.value)
    assert n.nvmlDeviceGetIndex(handle) == index
    info = n.nvmlDeviceGetPciInfo(handle)
    nvml = [n.nvmlDeviceGetName(handle), n.nvmlDeviceGetUUID(handle), info.busIdLegacy.lower(),
            n.nvmlDeviceGetMemoryInfo(handle).total, "{}.{}".format(*n.nvmlDeviceGetCudaComputeCapability(handle))]
    assert f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0" == info.busIdLegacy.lower()
    told["devices"].append([cuda, nvml])
listing = subprocess.run([*json.loads(sys.argv[1]), "devices", "--json"], capture_output=True, check=True)
devices = json.loads(listing.stdout)
assert devices["driver_release"] == n.nvmlSystemGetDriverVersion()
told["cuda_version"].append(devices["driver_version"])
for row, device in zip(told["devices"], devices["devices"], strict=True):
    row.append([device[key] for key in ("name", "uuid", "pci", "memory_nbytes", "compute_capability")])
print(json.dumps(told))
"""

USED = """
import ctypes, json, os, pynvml as n
cu = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    assert cu[name](*arguments) == 0, name
call("cuInit", 0)
n.nvmlInit()
handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
def processes():
    return [[[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses(h)] for h in handles]
before = processes()
context, address, free, total = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_size_t()
call("cuCtxCreate_v2", ctypes.byref(context), 0, 1)
call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(64 << 20))
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
infos = [n.nvmlDeviceGetMemoryInfo(h) for h in handles]
after = processes()
name = n.nvmlSystemGetProcessName(os.getpid())
count = ctypes.c_uint(0)
full = n._nvmlGetFunctionPointer(
    "nvmlDeviceGetComputeRunningProcesses_v3")(handles[1], ctypes.byref(count), None)
print(json.dumps({"pid": os.getpid(), "before": before, "after": after, "cuda": [free.value, total.value],
                  "nvml": [[i.free, i.total] for i in infos], "name": name, "short": [full, count.value]}))
"""


def told(vgpu_run: Run, code: str, *arguments: str) -> Any:
    result = vgpu_run([sys.executable, "-c", code, *arguments], gpu="h100,t4")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_one_identity(vgpu_run: Run) -> None:
    found = told(vgpu_run, TOLD, json.dumps(VGPU))
    assert found["cuda_version"] == [13000] * 3
    assert len(found["devices"]) == 2
    for cuda, nvml, vgpud in found["devices"]:
        assert cuda == nvml == vgpud


def test_memory_and_processes_follow_libcuda(vgpu_run: Run) -> None:
    found = told(vgpu_run, USED)
    assert found["before"] == [[], []]
    free, total = found["cuda"]
    assert found["nvml"][1] == [free, total]
    assert total - free >= 64 << 20
    assert found["nvml"][0][0] == found["nvml"][0][1]  # the other device's memory is unused
    assert found["after"] == [[], [[found["pid"], total - free]]]
    assert found["name"].startswith(sys.executable)
    assert found["short"] == [7, 1]  # INSUFFICIENT_SIZE, and the required number of entries


@pytest.mark.parametrize("visible", ["-1", "1"])
def test_nvml_shows_all_devices(vgpu_run: Run, visible: str) -> None:
    code = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount())"
    result = vgpu_run([sys.executable, "-c", code], gpu="h100,t4", env={"CUDA_VISIBLE_DEVICES": visible})
    assert result.stdout == "2\n", result.stderr


SMI = """
import ctypes, json, os, subprocess, sys
cu = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cu.cuInit(0) == 0 and cu.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
smi = [*json.loads(sys.argv[1]), "smi"]
apps = subprocess.run([*smi, "--query-compute-apps=pid,used_memory,gpu_name", "--format=csv,noheader,nounits"],
                      capture_output=True, text=True, check=True).stdout
used = subprocess.run([*smi, "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                      capture_output=True, text=True, check=True).stdout
table = subprocess.run(smi, capture_output=True, text=True, check=True).stdout
pmon = subprocess.run([*smi, "pmon", "-c", "1"], capture_output=True, text=True, check=True).stdout
print(json.dumps([os.getpid(), apps, used, table, pmon]))
"""


def test_smi_shows_the_guests_processes(vgpu_run: Run) -> None:
    pid, apps, used, table, pmon = told(vgpu_run, SMI, json.dumps(VGPU))
    shown_pid, nbytes, name = apps.rstrip("\n").split(", ")
    assert (int(shown_pid), name) == (pid, "NVIDIA H100 PCIe")
    assert int(nbytes) > 0
    first, second = map(int, used.split())
    assert first in (int(nbytes), int(nbytes) + 1)
    assert second == 0
    assert f"{pid}      C   {sys.executable}" in table
    assert pmon.splitlines()[2].split()[:3] == ["0", str(pid), "C"]
    assert pmon.splitlines()[3].split()[:3] == ["1", "-", "-"]


PRIVATE_LIST = """
import ctypes, json, os, struct
cu, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
context, table, device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlInternalGetExportTable(ctypes.byref(table), bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4")) == 0
kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
processes = kind((ctypes.c_uint64 * 270).from_address(table.value)[213])
def ask(room):
    count, records = ctypes.c_uint(room), ctypes.create_string_buffer(4128 * 2)
    return processes(device, ctypes.byref(count), records), count.value, records.raw
idle = ask(2)
assert cu.cuInit(0) == 0 and cu.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
short, full = ask(0), ask(2)
pid, used, instance = struct.unpack_from("<IxxxxQI", full[2])
print(json.dumps([idle[:2], short[:2], full[:2], [pid == os.getpid(), used > 0, instance],
                  full[2][32:].split(b"\\0")[0].decode()]))
"""


def test_the_private_list_nvidia_smi_reads(vgpu_run: Run) -> None:
    idle, short, full, record, name = told(vgpu_run, PRIVATE_LIST)
    assert (idle, short, full) == ([0, 0], [7, 1], [0, 1])
    assert record == [True, True, 0xFFFFFFFF]
    assert name == sys.executable
