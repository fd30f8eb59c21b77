"""`discover.py GGML_FOLDER`: find GPUs in Ollama's three ways, each in child processes as in Ollama.

Prints how many devices each way accepted. A (until October 2025) uses the driver alone. B (until May 2026) uses the
CUDA backend, then a second pass for each device by UUID. C (since then) uses backend, driver and NVML in one process.
"""

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

HERE = Path(__file__).parent
CHILD_TIMEOUT_S = 30  # Ollama's timeout for each directory of libraries

DRIVER = """
import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p, create_string_buffer
cuda = ctypes.CDLL("libcuda.so.1", mode=1)
names = ["cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetAttribute", "cuDeviceGetUuid",
         "cuDeviceGetName", "cuCtxCreate_v3", "cuMemGetInfo_v2", "cuCtxDestroy"]
functions = [getattr(cuda, name) for name in names]
def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, (name, result)
call("cuInit", 0)
count, device, value, context = c_int(), c_int(), c_int(), c_void_p()
call("cuDriverGetVersion", byref(value))
call("cuDeviceGetCount", byref(count))
for i in range(count.value):
    call("cuDeviceGet", byref(device), i)
    capability = []
    for attribute in (75, 76):
        call("cuDeviceGetAttribute", byref(value), attribute, device)
        capability.append(value.value)
    identity, name = create_string_buffer(16), create_string_buffer(100)
    call("cuDeviceGetUuid", identity, device)
    call("cuDeviceGetName", name, 100, device)
    call("cuCtxCreate_v3", byref(context), None, 0, 0, device)
    free, total = c_size_t(), c_size_t()
    call("cuMemGetInfo_v2", byref(free), byref(total))
    call("cuCtxDestroy", context)
    print("gpu", identity.raw.hex(), f"{capability[0]}.{capability[1]}", total.value // 2**20, name.value.decode())
"""

RUNTIME_UUIDS = """
import ctypes
runtime = ctypes.CDLL("libcudart.so.13")
count = ctypes.c_int()
assert runtime.cudaGetDeviceCount(ctypes.byref(count)) == 0
for i in range(count.value):
    properties = ctypes.create_string_buffer(1008)
    assert runtime.cudaGetDeviceProperties(properties, i) == 0
    print("gpu", properties.raw[256:272].hex())
"""

BACKEND_THEN_DRIVER_AND_NVML = """
import ctypes, runpy, sys
from ctypes import byref, c_int, c_size_t, create_string_buffer
program, folder = sys.argv[1:]
sys.argv = [program, folder]
runpy.run_path(program)
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
def call(library, name, *arguments):
    result = getattr(library, name)(*arguments)
    assert result == 0, (name, result)
call(cuda, "cuInit", 0)
version, count, device, value = c_int(), c_int(), c_int(), c_int()
call(cuda, "cuDriverGetVersion", byref(version))
driver = create_string_buffer(80)
call(nvml, "nvmlInit_v2")
call(nvml, "nvmlSystemGetDriverVersion", driver, 80)
call(nvml, "nvmlShutdown")
call(cuda, "cuDeviceGetCount", byref(count))
for i in range(count.value):
    call(cuda, "cuDeviceGet", byref(device), i)
    numbers = []
    for attribute in (75, 76, 18):
        call(cuda, "cuDeviceGetAttribute", byref(value), attribute, device)
        numbers.append(value.value)
    name, total, pci = create_string_buffer(256), c_size_t(), create_string_buffer(32)
    call(cuda, "cuDeviceGetName", name, 256, device)
    call(cuda, "cuDeviceTotalMem_v2", byref(total), device)
    call(cuda, "cuDeviceGetPCIBusId", pci, 32, device)
    print("gpu", pci.value.decode().lower(), f"{numbers[0]}.{numbers[1]}", total.value // 2**20, driver.value.decode())
"""


def child(*command: object, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, *map(str, command)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=CHILD_TIMEOUT_S,
    )
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def found(output: str) -> list[list[str]]:
    return [line.split(maxsplit=4)[1:] for line in output.splitlines() if line.startswith("gpu ")]


def backend_devices(**environment: str) -> list[str]:
    """PCI addresses of the devices that the CUDA backend lists."""
    return re.findall(r" at (\S+)$", child(HERE / "with_ggml.py", folder, **environment), re.MULTILINE)


folder = sys.argv[1]
by_driver = found(child("-c", DRIVER))
print("A accepted", len(by_driver))
assert all(int(gpu[2]) > 0 and float(gpu[1]) >= 5 for gpu in by_driver)

first = backend_devices()
identities = [str(uuid.UUID(gpu[0])) for gpu in found(child("-c", RUNTIME_UUIDS))]
assert [uuid.UUID(identity).hex for identity in identities] == [gpu[0] for gpu in by_driver]
accepted = []
for i, identity in enumerate(identities):
    second = backend_devices(GGML_CUDA_INIT="1", CUDA_VISIBLE_DEVICES=f"GPU-{identity}")
    assert second == [first[i]], f"the second pass of device {i} found {second}"
    accepted += second
assert backend_devices(CUDA_VISIBLE_DEVICES="GPU-ffffffff-ffff-ffff-ffff-ffffffffffff") == []
print("B accepted", len(accepted))

output = child("-c", BACKEND_THEN_DRIVER_AND_NVML, HERE / "with_ggml.py", folder)
by_both = found(output)
assert [gpu[0] for gpu in by_both] == [address.lower() for address in first], (by_both, first)
assert all(int(gpu[2]) > 0 for gpu in by_both)
print("C accepted", len(by_both))
