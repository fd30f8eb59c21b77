"""The simulator's C half behind ctypes, with hand-written kernels (vgt_kernels.c) in place of the compiler."""

from __future__ import annotations

import ctypes
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MIB = 1 << 20
INT32_MIN = -(1 << 31)
UINT64_MAX = (1 << 64) - 1
PRIVATE, IN_FILE = 0, 2  # devices, by where their memory lies
DEVICE_NBYTES = 1 << 40  # vgw_device_memory.h

# Attributes of an H100 that the C half reads (CUdevice_attribute).
ATTRIBUTES = {
    1: 1024,
    2: 1024,
    3: 1024,
    4: 64,
    5: 2**31 - 1,
    6: 65535,
    7: 65535,
    8: 49152,
    10: 32,
    11: 2**31 - 1,
    16: 132,
    39: 2048,
    75: 9,
    76: 0,
    81: 233472,
    82: 65536,
    95: 1,
    97: 232448,
    106: 32,
    111: 1024,
}
LIMITS = [1024, 4096, 8 * MIB]
CONTEXT_NBYTES = 620 * MIB


class Properties(ctypes.Structure):
    _fields_ = [
        ("memory_nbytes", ctypes.c_uint64),
        ("context_nbytes", ctypes.c_uint64),
        ("priority_least", ctypes.c_int32),
        ("priority_greatest", ctypes.c_int32),
        ("attributes", ctypes.c_int32 * 192),
        ("limits", ctypes.c_uint64 * 16),
    ]


class Simulator:
    """`sim.cuMemAlloc_v2(...)` calls vgx_sim_cuMemAlloc_v2 and returns its result code."""

    def __init__(self, lib: ctypes.CDLL, device: int = PRIVATE) -> None:
        self.lib = lib
        self.device = device

    def __getattr__(self, name: str) -> ctypes._NamedFuncPointer:
        function = getattr(self.lib, f"vgx_sim_{name}")
        if name.startswith("cu"):
            function.restype = ctypes.c_int32
        return function

    def ok(self, name: str, *args: object) -> None:
        result = getattr(self, name)(*args)
        assert result == 0, f"{name} answered {result}"

    def alloc(self, nbytes: int) -> int:
        address = ctypes.c_uint64()
        self.ok("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        return address.value

    def write(self, address: int, data: bytes) -> None:
        self.ok("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def read(self, address: int, nbytes: int) -> bytes:
        buffer = ctypes.create_string_buffer(nbytes)
        self.ok("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(address), ctypes.c_size_t(nbytes))
        return buffer.raw

    def free_nbytes(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.ok("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def stream(self, flags: int = 0) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        self.ok("cuStreamCreateWithPriority", ctypes.byref(stream), flags, 0)
        return stream

    def module(self) -> ctypes.c_void_p:
        module = ctypes.c_void_p()
        self.ok("load_module", ctypes.byref(module), b"vgt", ctypes.c_uint64(3))
        return module

    def kernel(self, name: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self.ok("cuModuleGetFunction", ctypes.byref(function), self.module(), name.encode())
        return function

    def launch(self, kernel: ctypes.c_void_p, *params: int, grid: int = 1, block: int = 32, shared: int = 0) -> int:
        """Launch in the legacy stream with 8-byte parameters. Returns the result code."""
        values = [ctypes.c_uint64(value) for value in params]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
        return int(
            self.cuLaunchKernel(kernel, grid, 1, 1, block, 1, 1, shared, None, pointers if values else None, None)
        )

    def output(self) -> bytes:
        buffer = ctypes.create_string_buffer(1 << 16)
        used = self.take_output(buffer, ctypes.c_uint64(1 << 16))
        return buffer.raw[:used]

    def event(self, flags: int = 0) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self.ok("cuEventCreate", ctypes.byref(event), flags)
        return event


def compile_simulator(target: Path) -> Path:
    """Compile the sources; VGT_CFLAGS adds flags, such as a sanitizer's."""
    sources = sorted((ROOT / "daemon/vgpusim/device").glob("*.c")) + sorted((ROOT / "tests/vgpusim/device").glob("*.c"))
    includes = ["-I", ROOT / "daemon/vgpusim/device", "-I", ROOT / "protocol/c", "-I", ROOT / "build/gen"]
    flags = os.environ.get("VGT_CFLAGS", "").split()
    command = [
        os.environ.get("CC", "gcc"),
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        "-g",
        "-fPIC",
        "-shared",
        "-pthread",
        "-Wl,--wrap=calloc",  # vgt_calloc.c
        "-Wl,--wrap=vgx_sim_schedule,--wrap=sem_post",  # vgt_schedule.c
        *flags,
        *includes,
        *sources,
        "-o",
        target,
        "-lm",
    ]
    subprocess.run(command, check=True, timeout=300)
    return target


@pytest.fixture(scope="session")
def library_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (ROOT / "build/gen/vgx_backend.h").exists():
        subprocess.run([sys.executable, "-m", "protocol.gen"], cwd=ROOT, check=True, timeout=120)
    return compile_simulator(tmp_path_factory.mktemp("simulator") / "vgt_simulator.so")


def device_file(nbytes: int = DEVICE_NBYTES, seals: int = fcntl.F_SEAL_SHRINK) -> int:
    """A file for a device's memory, created as clients create it."""
    file = os.memfd_create("vgt", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(file, nbytes)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


def open_simulator(path: Path) -> ctypes.CDLL:
    """Load the library and configure three devices; at most once in a process, since the library reserves addresses.

    The last device's memory lies in a file, as for clients on the same machine.
    """
    lib = ctypes.CDLL(str(path))
    for device in range(IN_FILE + 1):
        properties = Properties(memory_nbytes=80 << 30, context_nbytes=CONTEXT_NBYTES, priority_greatest=-5)
        properties.attributes[:] = [ATTRIBUTES.get(i, INT32_MIN) for i in range(192)]
        properties.limits[:] = [*LIMITS, *([UINT64_MAX] * 13)]
        assert lib.vgx_sim_configure(device, ctypes.byref(properties)) == 0
    file = device_file()
    assert lib.vgx_sim_device_file(IN_FILE, file) == 0
    os.close(file)
    lib.vgx_sim_set_threads(4)
    lib.vgt_install()
    lib.vgt_keep_log()
    lib.vgt_last_log.restype = ctypes.c_char_p
    lib.vgx_sim_take_output.restype = ctypes.c_uint64
    lib.vgx_sim_output_pending.restype = ctypes.c_bool
    return lib


@pytest.fixture(scope="session")
def library(library_path: Path) -> ctypes.CDLL:
    return open_simulator(library_path)


@pytest.fixture
def sim(library: ctypes.CDLL) -> Iterator[Simulator]:
    """A simulator with a fresh context current; the context is destroyed afterwards."""
    yield from on_device(library, PRIVATE)


def on_device(library: ctypes.CDLL, device: int) -> Iterator[Simulator]:
    """The body of the fixture `sim`, for any device."""
    simulator = Simulator(library, device)
    context = ctypes.c_void_p()
    simulator.ok("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    yield simulator
    simulator.ok("cuCtxDestroy_v2", context)
