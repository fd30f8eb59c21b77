"""Contexts: the primary context, each thread's current context, limits, what remains after destruction."""

from __future__ import annotations

import ctypes
import threading

from tests.daemon.running import wait_until
from tests.patience import PATIENCE_S

from .conftest import Simulator

INVALID_CONTEXT, CONTEXT_IS_DESTROYED = 201, 709


def test_primary_context_is_counted_and_frees_its_memory(sim: Simulator) -> None:
    first, second, state, flags = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint()
    assert sim.cuDevicePrimaryCtxRelease_v2(1) == INVALID_CONTEXT
    sim.ok("cuDevicePrimaryCtxRetain", ctypes.byref(first), 1)
    sim.ok("cuDevicePrimaryCtxRetain", ctypes.byref(second), 1)
    assert first.value == second.value
    sim.ok("cuCtxSetCurrent", first)
    before, stream = sim.free_nbytes(), sim.stream()
    address = sim.alloc(1 << 20)
    assert address >= 0x200000000000 + (1 << 40), "device 1 has its own addresses"
    sim.ok("cuDevicePrimaryCtxRelease_v2", 1)
    assert sim.read(address, 1) == b"\0"
    sim.ok("cuDevicePrimaryCtxRelease_v2", 1)
    sim.ok("cuDevicePrimaryCtxGetState", 1, ctypes.byref(flags), ctypes.byref(state))
    assert state.value == 0
    assert sim.cuMemFree_v2(ctypes.c_uint64(address)) == CONTEXT_IS_DESTROYED
    assert sim.cuStreamQuery(stream) == CONTEXT_IS_DESTROYED
    sim.ok("cuDevicePrimaryCtxRetain", ctypes.byref(first), 1)
    assert sim.free_nbytes() == before, "what the context owned went with it"
    assert sim.cuStreamQuery(stream) == 400, "a stream of the context's former life"
    sim.ok("cuDevicePrimaryCtxReset_v2", 1)


def test_current_context_is_the_threads(sim: Simulator) -> None:
    seen: list[int] = []
    address = ctypes.c_uint64()
    thread = threading.Thread(target=lambda: seen.append(sim.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(16))))
    thread.start()
    thread.join(PATIENCE_S)
    assert seen == [INVALID_CONTEXT]


def test_AT10_a_context_ends_after_a_module_that_is_being_loaded_into_it(sim: Simulator) -> None:
    """Two rings of a hostile client do this: the memory of the module's variables was freed while they were filled."""
    context, module, results = ctypes.c_void_p(), ctypes.c_void_p(), list[int]()
    sim.ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), 1)
    gate = ctypes.c_int.in_dll(sim.lib, "vgt_gate")
    gate.value = 1

    def load() -> None:
        sim.ok("cuCtxSetCurrent", context)
        results.append(sim.load_module(ctypes.byref(module), b"vgt", ctypes.c_uint64(3)))

    loads, ends = threading.Thread(target=load), threading.Thread(target=sim.cuDevicePrimaryCtxReset_v2, args=(1,))
    loads.start()
    wait_until(lambda: gate.value == 2)
    ends.start()
    ends.join(0.3)  # without the wait for the module the context has ended by now
    waits, gate.value = ends.is_alive(), 0
    assert waits
    for thread in (loads, ends):
        thread.join(PATIENCE_S)
    assert results == [CONTEXT_IS_DESTROYED]


def test_wrong_arguments(sim: Simulator) -> None:
    out = ctypes.c_void_p()
    assert sim.cuCtxCreate_v2(ctypes.byref(out), 0, 9) == 101
    assert sim.cuCtxCreate_v2(ctypes.byref(out), 0xFFFF, 0) == 1
    assert sim.cuDevicePrimaryCtxRetain(ctypes.byref(out), 5) == 101
    assert sim.cuDevicePrimaryCtxSetFlags_v2(0, 0xFFFF) == 1
    assert sim.cuDevicePrimaryCtxSetFlags_v2(0, 4) == 0
    assert sim.cuDevicePrimaryCtxSetFlags_v2(0, 0) == 0


def test_limits(sim: Simulator) -> None:
    value = ctypes.c_size_t()
    assert sim.cuCtxSetLimit(0, ctypes.c_size_t(1 << 30)) == 1
    assert sim.cuCtxSetLimit(99, ctypes.c_size_t(1)) == 1
    assert sim.cuCtxSetLimit(3, ctypes.c_size_t(1)) == 215
    assert sim.cuCtxGetLimit(None, 0) == 1
    sim.ok("cuCtxSetLimit", 0, ctypes.c_size_t(4096))
    sim.ok("cuCtxGetLimit", ctypes.byref(value), 0)
    assert value.value == 4096
