"""Memory mapped by both sides, on a channel without shared memory: kernels access a copy of it (NR07, NR08, NR09).
Whole programs: tests/programs/host_memory.cu and others, in tests/programs and tests/relayed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.daemon.running import Running
from tests.shim.client import run
from tests.shim.simulated import KERNELS

HELPERS = (
    KERNELS
    + """
def pinned(nbytes, flags=0):
    memory = c_void_p()
    ok(cuda.cuMemHostAlloc(byref(memory), c_size_t(nbytes), flags))
    return memory
def store(memory, *values): ctypes.memmove(memory, pack(values), 4 * len(values))
def load(memory, n): return list(struct.unpack(f"<{n}I", ctypes.string_at(memory, 4 * n)))
def scale(f, address, n, by):
    return launch(f, n, None, params(c_uint64(address), c_uint(n), ctypes.c_uint8(by), c_uint64(0)))
"""
)


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("socket")
    config = directory / "vgpud.toml"
    config.write_text(
        f"listen = ['unix:{directory}/s']\ngpus = 'h100'\nadmin = ''\ncache_dir = '{directory}'\n"
        "shared_memory = false\n[limits]\nhost_memory_mib = 4\n"
    )
    running = Running.start(config, directory, "log")
    running.wait_ready()
    yield f"unix:{directory}/s"
    running.end()


def test_nr08_attributes_and_flags_are_true(endpoint: str) -> None:
    run(
        endpoint,
        HELPERS
        + """
context()
value, pointer, flags = c_int(9), c_uint64(7), c_uint(7)
# Map host memory, managed memory, register host memory; managed memory of host and device at once.
for attribute, wanted in ((19, 1), (83, 1), (99, 1), (89, 0)):
    ok(cuda.cuDeviceGetAttribute(byref(value), attribute, 0))
    assert value.value == wanted, attribute
for asked in (0, 2):
    memory = pinned(4096, asked)
    ok(cuda.cuMemHostGetFlags(byref(flags), memory))
    assert flags.value == 2
    ok(cuda.cuPointerGetAttribute(byref(pointer), 3, memory))
    assert pointer.value == memory.value
    ok(cuda.cuMemHostGetDevicePointer_v2(byref(pointer), memory, 0))
    assert pointer.value == memory.value
    ok(cuda.cuMemFreeHost(memory))
""",
    )


def test_only_what_a_kernel_may_reach_is_copied(endpoint: str) -> None:
    """The worker has 4 MiB for copies. Memory that is only copied needs none of them; the launch that passes such an
    address says why it cannot, and what is freed can be had again."""
    output = run(
        endpoint,
        HELPERS
        + """
context()
os.dup2(1, 2)
f = function(module(), b"scale")
big, device = [pinned(3 << 20) for _ in range(4)], alloc(3 << 20)
for memory in big:
    store(memory, 5, 6)
    ok(cuda.cuMemcpyHtoD_v2(device, memory, c_size_t(3 << 20)))
    ok(scale(f, device.value, 2, 3))
    ok(cuda.cuMemcpyDtoH_v2(memory, device, c_size_t(3 << 20)))
    assert load(memory, 3) == [15, 18, 0]
for memory in big[:3]:
    ok(scale(f, memory.value + 4, 2, 2))
    assert scale(f, big[3].value, 2, 2) == 2
    ok(cuda.cuCtxSynchronize())
    assert load(memory, 3) == [15, 36, 0]
    ok(cuda.cuMemFreeHost(memory))
ok(scale(f, big[3].value, 2, 2))
""",
    )
    assert "host memory that a kernel may reach have no copy in vgpud's worker" in output
    assert "limits.host_memory_mib" in output


def test_copies_end_with_their_context(endpoint: str) -> None:
    """The worker has 4 MiB for copies, and memory that a program has not freed is its context's."""
    run(
        endpoint,
        HELPERS
        + """
ok(cuda.cuInit(0))
for turn in range(4):
    ctx = c_void_p()
    ok(cuda.cuCtxCreate_v2(byref(ctx), 0, 0))
    memory, managed, registered = pinned(1 << 20, 2), c_uint64(), ctypes.create_string_buffer(1 << 20)
    ok(cuda.cuMemAllocManaged(byref(managed), c_size_t(1 << 20), 1))
    ok(cuda.cuMemHostRegister_v2(registered, c_size_t(1 << 20), 2))
    ok(cuda.cuMemHostGetDevicePointer_v2(byref(c_uint64()), registered, 0))
    store(memory, 5, 6)
    f = function(module(), b"scale")
    ok(scale(f, memory.value, 2, 3))
    ok(cuda.cuCtxSynchronize())
    assert load(memory, 2) == [15, 18]
    ok(cuda.cuCtxDestroy_v2(ctx))
""",
    )


def test_nr09_gr9_managed_memory(endpoint: str) -> None:
    run(
        endpoint,
        HELPERS
        + """
context()
f = function(module(), b"scale")
for _ in range(4):  # freed memory gives its copy back
    pointer = c_uint64()
    ok(cuda.cuMemAllocManaged(byref(pointer), c_size_t(2 << 20), 1))
    store(pointer.value, 5, 6)
    ok(scale(f, pointer.value, 2, 3))
    ok(cuda.cuCtxSynchronize())
    assert load(pointer.value, 2) == [15, 18]
    ok(cuda.cuMemFree_v2(pointer))
""",
    )


def test_nr07_registered_memory_of_any_kind(endpoint: str) -> None:
    """Also memory that the program unmaps while it is registered: later launches do not touch it."""
    run(
        endpoint,
        HELPERS
        + """
import mmap
context()
f = function(module(), b"scale")
pointer, file = c_uint64(7), open(sys.executable, "rb")
memory = create_string_buffer(16384)
at = ctypes.addressof(memory) + 12
ok(cuda.cuMemHostRegister_v2(c_uint64(at), c_size_t(9000), 0))
assert cuda.cuPointerGetAttribute(byref(pointer), 3, c_uint64(at)) == 1  # none before it is asked for
ok(cuda.cuMemHostGetDevicePointer_v2(byref(pointer), c_uint64(at), 0))
store(at, 5, 6)
ok(scale(f, pointer.value, 2, 3))
ok(cuda.cuMemHostUnregister(c_uint64(at)))  # waits
assert load(at, 3) == [15, 18, 0]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = c_void_p
private = libc.mmap(None, c_size_t(8192), 3, mmap.MAP_PRIVATE, file.fileno(), c_size_t(0))
ok(cuda.cuMemHostRegister_v2(c_void_p(private), c_size_t(8192), 2))
ok(cuda.cuMemHostGetDevicePointer_v2(byref(pointer), c_void_p(private), 0))
assert libc.munmap(c_void_p(private), c_size_t(8192)) == 0
ok(scale(f, pointer.value, 2, 3))
ok(cuda.cuCtxSynchronize())
""",
    )


def test_memory_of_a_destroyed_context(endpoint: str) -> None:
    run(
        endpoint,
        HELPERS
        + """
context()
f = function(module(), b"scale")
for _ in range(3):
    other = new(cuda.cuCtxCreate_v2, 0, 0)
    memory, g = pinned(4096), function(module(), b"scale")
    store(memory, 5)
    ok(scale(g, memory.value, 1, 3))
    ok(cuda.cuCtxDestroy_v2(other))
    kept = pinned(4096, 2)
    store(kept, 7)
    ok(scale(f, kept.value, 1, 3))
    ok(cuda.cuCtxSynchronize())
    assert load(kept, 1) == [21]
""",
    )


def test_each_context_is_waited_for_itself(endpoint: str) -> None:
    """A wait for a context without work does not fetch what a kernel of another one writes later; a wait for that one
    does."""
    run(
        endpoint,
        HELPERS
        + """
primary, word = context(), alloc(4)
other = new(cuda.cuCtxCreate_v2, 0, 0)
f, memory, stream = function(module(), b"scale"), pinned(4096, 2), new(cuda.cuStreamCreate, 1)
store(memory, 5)
ok(cuda.cuMemsetD32_v2(word, 0, c_size_t(1)))
ok(cuda.cuCtxSynchronize())
ok(cuda.cuStreamWaitValue32_v2(stream, word, 1, 0))
ok(launch(f, 1, stream, params(memory, c_uint(1), ctypes.c_uint8(3), c_uint64(0))))
ok(cuda.cuCtxSetCurrent(primary))
ok(cuda.cuCtxSynchronize())
assert load(memory, 1) == [5]
ok(cuda.cuMemsetD32_v2(word, 1, c_size_t(1)))
ok(cuda.cuCtxSetCurrent(other))
ok(cuda.cuCtxSynchronize())
assert load(memory, 1) == [15]
""",
    )
