"""Modules, launches, device output and heap, with hand-written kernels."""

from __future__ import annotations

import ctypes
import struct
import threading

import pytest

from tests.patience import PATIENCE_S

from .conftest import MIB, Simulator

INVALID_VALUE, OUT_OF_RESOURCES, INVALID_HANDLE, NOT_FOUND = 1, 701, 400, 500


def test_every_cta_runs_once(sim: Simulator) -> None:
    address = sim.alloc(8 * 10_000)
    assert sim.launch(sim.kernel("fill"), address, 5, grid=10_000) == 0
    assert struct.unpack("<10000Q", sim.read(address, 80_000)) == tuple(range(5, 10_005))


def test_a_cta_may_wait_for_lower_ones(sim: Simulator) -> None:
    address = sim.alloc(4 * 3000)
    assert sim.launch(sim.kernel("chain"), address, grid=3000) == 0
    sim.ok("cuCtxSynchronize")
    assert sim.read(address, 12_000) == b"\1\0\0\0" * 3000


def test_what_a_launch_refuses(sim: Simulator) -> None:
    kernel, address = sim.kernel("fill"), sim.alloc(64)
    good = {"grid": 1, "block": 1}
    assert sim.launch(kernel, address, 0, **good) == 0
    for bad in ({"grid": 0}, {"block": 0}, {"block": 2048}, {"block": 1025}, {"shared": 1 << 20}, {"shared": 60000}):
        assert sim.launch(kernel, address, 0, **{**good, **bad}) == INVALID_VALUE, bad
    assert sim.cuLaunchKernel(kernel, 1, 70000, 1, 1, 1, 1, 0, None, None, None) == INVALID_VALUE
    assert sim.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 65, 0, None, None, None) == INVALID_VALUE
    assert sim.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None) == INVALID_VALUE, "no parameters"
    assert sim.launch(ctypes.c_void_p(), address, 0) == INVALID_HANDLE
    assert sim.cuFuncSetAttribute(kernel, 8, 60000) == 0
    assert sim.launch(kernel, address, 0, shared=60000) == 0
    assert sim.cuFuncSetAttribute(kernel, 8, 1 << 20) == INVALID_VALUE
    assert sim.cuFuncSetAttribute(kernel, 4, 1) == INVALID_VALUE
    sim.ok("cuCtxSynchronize")


@pytest.mark.parametrize(("nbytes", "expected"), [(8, OUT_OF_RESOURCES), (16, 0), (64, 0)])
def test_packed_parameters(sim: Simulator, nbytes: int, expected: int) -> None:
    address = sim.alloc(64)
    block = ctypes.create_string_buffer(struct.pack("<QQ", address, 77), 64)
    size = ctypes.c_size_t(nbytes)
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(block), 2, ctypes.addressof(size), 0)
    kernel = sim.kernel("fill")
    assert sim.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, extra) == expected
    pointers = (ctypes.c_void_p * 2)(ctypes.addressof(block), ctypes.addressof(block))
    assert sim.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, pointers, extra) == INVALID_VALUE, "both forms"
    assert sim.read(address, 8) == struct.pack("<Q", 0 if expected else 77)


def test_module_names_variables_and_unloading(sim: Simulator, library: ctypes.CDLL) -> None:
    module, out, nbytes, count = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_uint()
    assert sim.load_module(ctypes.byref(module), b"garbage", ctypes.c_uint64(7)) == 200
    assert module.value is None
    module = sim.module()
    assert sim.cuModuleGetFunction(ctypes.byref(out), module, b"missing") == NOT_FOUND
    assert sim.cuModuleGetGlobal_v2(ctypes.byref(out), None, module, b"missing") == NOT_FOUND
    sim.ok("cuModuleGetGlobal_v2", ctypes.byref(out), ctypes.byref(nbytes), module, b"gv")
    assert (nbytes.value, sim.read(out.value, 4)) == (4, b"\x2a\0\0\0")
    table = ctypes.c_uint64()
    sim.ok("cuModuleGetGlobal_v2", ctypes.byref(table), None, module, b"table")
    assert sim.read(table.value, 1000) == b"\7" * 1000
    sim.ok("cuModuleGetFunctionCount", ctypes.byref(count), module)
    kernel = ctypes.c_void_p()
    sim.ok("cuModuleGetFunction", ctypes.byref(kernel), module, b"count_up")
    for _ in range(3):
        assert sim.launch(kernel, grid=100) == 0
    assert sim.read(out.value, 4) == struct.pack("<I", 342)
    names = (ctypes.c_void_p * count.value)()
    sim.ok("cuModuleEnumerateFunctions", names, count, module)
    assert kernel.value in list(names)
    loaded = ctypes.c_uint32.in_dll(library, "vgt_loaded").value
    sim.ok("cuModuleUnload", module)
    assert ctypes.c_uint32.in_dll(library, "vgt_loaded").value == loaded - 1
    assert sim.launch(kernel, grid=100) == INVALID_HANDLE, "a function of an unloaded module"
    assert sim.cuModuleUnload(module) == INVALID_HANDLE


def test_library_kernels_are_accepted_as_functions(sim: Simulator) -> None:
    library, kernel, function, address = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), sim.alloc(64)
    value, name = ctypes.c_int(), ctypes.c_char_p()
    sim.ok("load_library", ctypes.byref(library), b"vgt", ctypes.c_uint64(3))
    assert sim.cuLibraryGetKernel(ctypes.byref(kernel), library, b"nope") == NOT_FOUND
    sim.ok("cuLibraryGetKernel", ctypes.byref(kernel), library, b"fill")
    assert sim.launch(kernel, address, 9) == 0
    assert sim.read(address, 8) == struct.pack("<Q", 9)
    sim.ok("cuKernelGetFunction", ctypes.byref(function), kernel)
    assert sim.launch(function, address, 10) == 0
    sim.ok("cuKernelSetAttribute", 8, 50000, kernel, 0)
    sim.ok("cuFuncGetAttribute", ctypes.byref(value), 8, function)
    assert value.value == 50000
    sim.ok("cuFuncSetAttribute", kernel, 8, 60000)
    assert sim.launch(kernel, address, 11) == 0
    sim.ok("cuFuncGetAttribute", ctypes.byref(value), 8, function)
    assert value.value == 60000, "the later value"
    sim.ok("cuKernelGetName", ctypes.byref(name), kernel)
    assert name.value == b"fill"
    sim.ok("cuLibraryUnload", library)
    assert sim.launch(kernel, address, 9) == INVALID_HANDLE
    assert sim.cuLibraryUnload(library) == INVALID_HANDLE


def test_a_block_shape_is_compiled_once(sim: Simulator, library: ctypes.CDLL) -> None:
    compiled = ctypes.c_uint32.in_dll(library, "vgt_compiled")
    kernel, address, before = sim.kernel("fill"), sim.alloc(64), compiled.value
    context = ctypes.c_void_p()
    sim.ok("cuCtxGetCurrent", ctypes.byref(context))
    results: list[int] = []

    def work() -> None:
        sim.ok("cuCtxSetCurrent", context)
        results.extend(sim.launch(kernel, address, 1, block=64 + 32 * (i % 2)) for i in range(50))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert results == [0] * 400
    assert compiled.value - before == 2


def test_attributes_and_occupancy(sim: Simulator) -> None:
    kernel, value, nbytes = sim.kernel("fill"), ctypes.c_int(), ctypes.c_size_t()
    occupancy = sim.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
    assert sim.cuFuncGetAttribute(ctypes.byref(value), 99, kernel) == INVALID_VALUE
    sim.ok("cuFuncGetAttribute", ctypes.byref(value), 8, kernel)
    assert value.value == 49152
    assert occupancy(ctypes.byref(value), kernel, 0, ctypes.c_size_t(0), 0) == INVALID_VALUE
    for block, shared, expected in [
        (4096, 0, 0),
        (1024, 0, 2),
        (256, 0, 8),
        (32, 0, 32),
        (128, 100_000, 2),
        (128, 300_000, 0),
    ]:
        assert occupancy(ctypes.byref(value), kernel, block, ctypes.c_size_t(shared), 0) == 0
        assert value.value == expected, (block, shared)
    sim.ok("cuOccupancyAvailableDynamicSMemPerBlock", ctypes.byref(nbytes), kernel, 2, 128)
    assert nbytes.value == 233472 // 2 - 1024


def test_launch_attributes(sim: Simulator) -> None:
    class Config(ctypes.Structure):
        _fields_ = [
            ("dims", ctypes.c_uint * 6),
            ("shared", ctypes.c_uint),
            ("stream", ctypes.c_void_p),
            ("attributes", ctypes.c_void_p),
            ("count", ctypes.c_uint),
        ]

    kernel, address = sim.kernel("fill"), sim.alloc(64)
    values = [ctypes.c_uint64(address), ctypes.c_uint64(3)]
    params = (ctypes.c_void_p * 2)(*(ctypes.addressof(v) for v in values))

    def launch(identifier: int, *words: int) -> int:
        attribute = ctypes.create_string_buffer(
            struct.pack("<ii", identifier, 0) + struct.pack(f"<{len(words)}i", *words), 72
        )
        config = Config((ctypes.c_uint * 6)(1, 1, 1, 32, 1, 1), 0, None, ctypes.addressof(attribute), 1)
        return int(sim.cuLaunchKernelEx(ctypes.byref(config), kernel, params, None))

    assert launch(6, 1) == 0, "programmatic serialization is a permission"
    assert launch(16, 1) == 0, "a hint"
    assert launch(15, 1) == INVALID_VALUE
    assert launch(4, 1, 1, 1) == 0
    assert launch(4, 2, 1, 1) == 801, "clusters"
    assert launch(2, 1) == 801, "this kernel was not compiled to be cooperative"
    assert launch(99) == INVALID_VALUE
    sim.ok("cuCtxSynchronize")


@pytest.mark.parametrize(
    ("text", "args", "expected"),
    [
        (b"plain %% text\n", b"", b"plain % text\n"),
        (b"%d %u %x", struct.pack("<iII", -5, 4_000_000_000, 255), b"-5 4000000000 ff"),
        (
            b"%ld|%lld|%llu",
            struct.pack("<qqQ", -(1 << 40), -1, (1 << 64) - 1),
            b"-1099511627776|-1|18446744073709551615",
        ),
        (b"%d %f %c", struct.pack("<iidi", 1, 0, 2.5, 65), b"1 2.500000 A"),
        (
            b"[%5d][%-6.2f][%*d][%05x]",
            struct.pack("<iidiiI", 42, 0, 3.14159, 4, 7, 0xAB),
            b"[   42][3.14  ][   7][000ab]",
        ),
        (b"%p", struct.pack("<Q", 0x1234), b"0x1234"),
        (b"%y and on", b"", b"%y and on"),
    ],
)
def test_printf(sim: Simulator, text: bytes, args: bytes, expected: bytes) -> None:
    form, block = sim.alloc(256), sim.alloc(256)
    sim.write(form, text + b"\0")
    if args:
        sim.write(block, args)
    assert sim.launch(sim.kernel("print"), form, block) == 0
    sim.ok("cuCtxSynchronize")
    assert sim.output_pending()
    assert sim.output() == expected
    assert not sim.output_pending()


def test_printf_of_strings_and_overflow(sim: Simulator) -> None:
    form, block, string = sim.alloc(256), sim.alloc(256), sim.alloc(2048)
    sim.write(form, b"<%s>\0")
    sim.write(string, b"x" * 500 + b"\0")
    sim.write(block, struct.pack("<Q", string))
    assert sim.launch(sim.kernel("print"), form, block, grid=100) == 0
    sim.ok("cuCtxSynchronize")
    assert sim.output() == (b"<" + b"x" * 500 + b">") * (4096 // 502), "the limit bounds what is kept"


def test_device_heap_is_bounded_and_reused(sim: Simulator) -> None:
    address, kernel = sim.alloc(8), sim.kernel("heap")
    for _ in range(2):
        assert sim.launch(kernel, address) == 0
        assert struct.unpack("<Q", sim.read(address, 8))[0] == 8 * MIB // 1024
