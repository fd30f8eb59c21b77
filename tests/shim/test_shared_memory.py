"""Functions that need memory mapped by both sides, on a channel without such memory: attributes, flags and errors show
that it is missing (NR08, NR09)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.daemon.running import Running
from tests.shim.client import run

NOT_SUPPORTED = 801


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("socket")
    config = directory / "vgpud.toml"
    config.write_text(
        f"listen = ['unix:{directory}/s']\ngpus = 'h100'\nadmin = ''\ncache_dir = '{directory}'\n"
        "shared_memory = false\n"
    )
    running = Running.start(config, directory, "log")
    running.wait_ready()
    yield f"unix:{directory}/s"
    running.end()


def test_nr08_attributes_promise_nothing(endpoint: str) -> None:
    run(
        endpoint,
        """
        context()
        value = c_int(9)
        for attribute in (19, 83, 89):  # map host memory, managed memory, concurrent managed access
            ok(cuda.cuDeviceGetAttribute(byref(value), attribute, 0))
            assert value.value == 0, attribute
        """,
    )


def test_nr08_mapped_memory_is_refused_and_pinned_memory_has_no_device_pointer(endpoint: str) -> None:
    run(
        endpoint,
        """
        context()
        memory, pointer, flags = c_void_p(7), c_uint64(7), c_uint(7)
        assert cuda.cuMemHostAlloc(byref(memory), c_size_t(4096), 2) == 801
        assert memory.value == 7
        ok(cuda.cuMemHostAlloc(byref(memory), c_size_t(4096), 0))
        assert cuda.cuMemHostGetDevicePointer_v2(byref(pointer), memory, 0) == 801
        assert cuda.cuPointerGetAttribute(byref(pointer), 3, memory) == 1
        assert pointer.value == 7
        ok(cuda.cuMemHostGetFlags(byref(flags), memory))
        assert flags.value == 0
        device = alloc(4096)  # copies do
        ctypes.memset(memory, 5, 4096)
        ok(cuda.cuMemcpyHtoD_v2(device, memory, c_size_t(4096)))
        ctypes.memset(memory, 0, 4096)
        ok(cuda.cuMemcpyDtoH_v2(memory, device, c_size_t(4096)))
        assert ctypes.string_at(memory, 4096) == bytes([5]) * 4096
        ok(cuda.cuMemFreeHost(memory))
        """,
    )


def test_nr09_gr9_managed_memory_is_refused_by_name_with_what_it_needs(endpoint: str) -> None:
    """A program that ignores the result ends with a signal; only this line tells its user why."""
    output = run(
        endpoint,
        """
        context()
        os.dup2(1, 2)
        pointer = c_uint64(7)
        assert cuda.cuMemAllocManaged(byref(pointer), c_size_t(4096), 1) == 801
        assert pointer.value == 7
        """,
    )
    assert "cuMemAllocManaged: CUDA_ERROR_NOT_SUPPORTED: managed memory needs a unix socket, or ivshmem" in output


def test_nr07_registered_memory_promises_nothing(endpoint: str) -> None:
    run(
        endpoint,
        """
        context()
        value, memory, pointer = c_int(9), create_string_buffer(16384), c_uint64(7)
        ok(cuda.cuDeviceGetAttribute(byref(value), 99, 0))
        assert value.value == 0
        assert cuda.cuMemHostRegister_v2(memory, c_size_t(16384), 2) == 801
        ok(cuda.cuMemHostRegister_v2(memory, c_size_t(16384), 0))
        assert cuda.cuMemHostGetDevicePointer_v2(byref(pointer), memory, 0) == 801
        assert cuda.cuPointerGetAttribute(byref(pointer), 3, c_uint64(ctypes.addressof(memory))) == 1
        assert pointer.value == 7
        ok(cuda.cuMemHostUnregister(memory))
        """,
    )
