"""The inventory of the host's real GPUs, from the real libcuda in a process of its own.

vgpud itself never loads the driver: `python -m vgpud.devices.host_gpu [LIBCUDA]` prints the INVENTORY map of
protocol/wire.md as msgpack on stdout, or one line on stderr and exit code 1. Limits and memory cost need a context, so
each device gets one for the time of the probe.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
import uuid
from typing import Any

from vgpusim.profiles.attribute import DeviceAttribute

from vgpud.proto.packing import pack_map, unpack_map

ATTRIBUTE_COUNT = 161
LIMIT_COUNT = 10
PEER_ATTRIBUTE_COUNT = 5
INVALID_ATTRIBUTE = -(1 << 31)
INVALID_LIMIT = (1 << 64) - 1
_MULTIPROCESSOR_COUNT = 16  # CUdevice_attribute
_NOT_SUPPORTED = 801  # CUresult
PROBE_TIMEOUT_S = 60.0

# Features that the card has but a remoted client cannot use: their attribute is 0, so that programs use another path
# instead of failing at a call. When a feature is implemented for clients, its line here is deleted.
WITHHELD = frozenset(
    {
        # the worker cannot access the client's pages, except those of pinned memory
        DeviceAttribute.DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
        DeviceAttribute.PAGEABLE_MEMORY_ACCESS,
        DeviceAttribute.PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
        DeviceAttribute.CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
        # clients share only with clients, by cuIpc and descriptors (vgx_ipc.c), not with other devices or APIs
        DeviceAttribute.HANDLE_TYPE_FABRIC_SUPPORTED,
        DeviceAttribute.MULTICAST_SUPPORTED,
        DeviceAttribute.DMA_BUF_SUPPORTED,
        DeviceAttribute.HOST_ALLOC_DMA_BUF_SUPPORTED,
        DeviceAttribute.GPU_DIRECT_RDMA_SUPPORTED,
        DeviceAttribute.GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
        DeviceAttribute.GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
        DeviceAttribute.GPU_DIRECT_RDMA_WRITES_ORDERING,
        DeviceAttribute.TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
        DeviceAttribute.COOPERATIVE_MULTI_DEVICE_LAUNCH,
        # not offered to clients: virtual memory and pools on the host or its nodes
        DeviceAttribute.HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        DeviceAttribute.HOST_NUMA_MEMORY_POOLS_SUPPORTED,
        DeviceAttribute.HOST_NUMA_MULTINODE_IPC_SUPPORTED,
        DeviceAttribute.HOST_MEMORY_POOLS_SUPPORTED,
        DeviceAttribute.HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    }
)

# Attributes that are bit masks: the bits that clients can use.
USABLE: dict[int, int] = {DeviceAttribute.MEMPOOL_SUPPORTED_HANDLE_TYPES: 1}  # file descriptors


class HostGpuError(Exception):
    """The real driver is missing or does not answer; the text is one line."""


def probe(libcuda: str = "libcuda.so.1", visible: str | None = None) -> dict[str, Any]:
    """Ask the real driver, in a child process.

    Args:
        libcuda: path or soname of the real driver.
        visible: CUDA_VISIBLE_DEVICES of that process; None: vgpud's.
    Returns:
        The INVENTORY map of protocol/wire.md.
    Raises:
        HostGpuError: no driver, no device, or no answer within 60 s.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "vgpud.devices.host_gpu", libcuda],
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
            env=None if visible is None else os.environ | {"CUDA_VISIBLE_DEVICES": visible},
        )
    except subprocess.TimeoutExpired as error:
        raise HostGpuError(f"{libcuda} did not answer within {PROBE_TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        raise HostGpuError(done.stderr.decode(errors="replace").strip() or f"{libcuda}: probe exited {done.returncode}")
    inventory: dict[str, Any] = unpack_map(done.stdout)
    return inventory


def probe_mig(libcuda: str, name: str) -> dict[str, Any]:
    """One MIG instance (`MIG-` and its UUID), as a device of the INVENTORY. Raises HostGpuError or ValueError: there is
    none."""
    identity = uuid.UUID(name.removeprefix("MIG-"))
    [device] = probe(libcuda, name)["devices"]
    return dict(device, uuid=identity.bytes, mig=True, peers=b"")


class _Driver:
    """The few driver calls the probe makes, with their results checked."""

    def __init__(self, path: str) -> None:
        try:
            self.library = ctypes.CDLL(path)
        except OSError as error:
            raise HostGpuError(str(error)) from error

    def result(self, name: str, *arguments: Any) -> int:
        return int(getattr(self.library, name)(*arguments))

    def call(self, name: str, *arguments: Any) -> None:
        code = self.result(name, *arguments)
        if code != 0:
            raise HostGpuError(f"{name} answered {code}")

    def integer(self, name: str, *arguments: Any) -> int:
        value = ctypes.c_int()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value


def _release() -> str:
    """The driver's release, from its kernel module; the CUDA version comes from cuDriverGetVersion."""
    try:
        with open("/sys/module/nvidia/version", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def _peers(driver: _Driver, device: int, count: int) -> bytes:
    """For each device, CUdevice_P2PAttribute 1 to 5; 0 for `device` itself, or if the driver reports an error."""
    numbers = []
    for ordinal in range(count):
        other = driver.integer("cuDeviceGet", ordinal)
        for attribute in range(1, PEER_ATTRIBUTE_COUNT + 1):
            value = ctypes.c_int()
            code = (
                0
                if other == device
                else driver.result("cuDeviceGetP2PAttribute", ctypes.byref(value), attribute, device, other)
            )
            numbers.append(value.value if code == 0 else 0)
    return struct.pack(f"<{len(numbers)}i", *numbers)


def _device(driver: _Driver, ordinal: int, count: int) -> dict[str, Any]:
    device = driver.integer("cuDeviceGet", ordinal)
    name = ctypes.create_string_buffer(256)
    driver.call("cuDeviceGetName", name, 256, device)
    identity = ctypes.create_string_buffer(16)
    driver.call("cuDeviceGetUuid", identity, device)
    pci = ctypes.create_string_buffer(32)
    driver.call("cuDeviceGetPCIBusId", pci, 32, device)
    total = ctypes.c_size_t()
    driver.call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
    context = ctypes.c_void_p()
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        driver.call("cuCtxSetCurrent", context)
        details = _context_details(driver, device)
    finally:
        driver.result("cuDevicePrimaryCtxRelease_v2", device)
    return {
        "name": name.value.decode(),
        "uuid": identity.raw,
        "pci": pci.value.decode().lower(),
        "memory_nbytes": total.value,
        "attributes": struct.pack(f"<{ATTRIBUTE_COUNT}i", *_attributes(driver, device)),
        "peers": _peers(driver, device, count),
        **details,
    }


def _attributes(driver: _Driver, device: int) -> list[int]:
    attributes = []
    for attribute in range(ATTRIBUTE_COUNT):
        value = ctypes.c_int()
        code = driver.result("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        known = 0 if attribute in WITHHELD else value.value & USABLE.get(attribute, -1)
        attributes.append(known if code == 0 else INVALID_ATTRIBUTE)
    return attributes


def _context_details(driver: _Driver, device: int) -> dict[str, Any]:
    limits = []
    for limit in range(LIMIT_COUNT):
        value = ctypes.c_size_t()
        code = driver.result("cuCtxGetLimit", ctypes.byref(value), limit)
        limits.append(value.value if code == 0 else INVALID_LIMIT)
    least, greatest = ctypes.c_int(), ctypes.c_int()
    driver.call("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    # CUmemAllocationProp: device memory of this device, no handle types (32 bytes; protocol/c/vgw_cuda.h).
    prop = struct.pack("<iiii16x", 1, 0, 1, device)
    granularity = []
    for option in (0, 1):
        nbytes = ctypes.c_size_t()
        code = driver.result("cuMemGetAllocationGranularity", ctypes.byref(nbytes), prop, option)
        if code not in (0, _NOT_SUPPORTED):  # a device without virtual memory management: granularity 0
            raise HostGpuError(f"cuMemGetAllocationGranularity answered {code}")
        granularity.append(nbytes.value if code == 0 else 0)
    topology = _sm_topology(driver, device)
    return {
        **({"sm_topology": topology} if topology else {}),
        "limits": struct.pack(f"<{LIMIT_COUNT}Q", *limits),
        "priorities": [least.value, greatest.value],
        "granularity": granularity,
        "context_nbytes": total.value - free.value,
    }


def _sm_topology(driver: _Driver, device: int) -> list[bytes]:
    """The location of each pair of multiprocessors: cuBLASLt asks the private table below for it (measured on an H200).

    Returns:
        [GPC of each pair, place of each pair in its GPC], one byte each; [] when the driver does not serve the table.
    """
    uuid = bytes.fromhex("1734dc26800d47458726c0f1e7dd8bca")
    table = ctypes.POINTER(ctypes.c_void_p)()
    if driver.result("cuGetExportTable", ctypes.byref(table), uuid) != 0 or not table:
        return []
    arrays = ctypes.POINTER(ctypes.c_ubyte)(), ctypes.POINTER(ctypes.c_ubyte)()
    answer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(table[4] or 0)
    if answer(ctypes.addressof(arrays[0]), ctypes.addressof(arrays[1])) != 0 or not arrays[0] or not arrays[1]:
        return []
    count = driver.integer("cuDeviceGetAttribute", _MULTIPROCESSOR_COUNT, device) // 2
    return [bytes(array[:count]) for array in arrays]


def main() -> int:
    try:
        driver = _Driver(sys.argv[1] if len(sys.argv) > 1 else "libcuda.so.1")
        driver.call("cuInit", 0)
        count = driver.integer("cuDeviceGetCount")
        inventory = {
            "driver_version": driver.integer("cuDriverGetVersion"),
            "driver_release": _release(),
            "backend": "cuda",
            "devices": [_device(driver, ordinal, count) for ordinal in range(count)],
        }
    except HostGpuError as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(pack_map(inventory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
