"""Order between streams, events, waits across streams, host functions. Host functions that wait stand for long work."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

from .conftest import Simulator

HOST_FN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
NOT_READY, NON_BLOCKING, DISABLE_TIMING = 600, 1, 2


class Recorder:
    """Host functions that append their name to a log, some of which wait for a gate first."""

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim
        self.log: list[str] = []
        self.kept: list[object] = []

    def launch(self, stream: ctypes.c_void_p | None, name: str, gate: threading.Event | None = None) -> None:
        def run(_: int | None) -> None:
            if gate is not None:
                assert gate.wait(PATIENCE_S)
            self.log.append(name)

        function = HOST_FN(run)
        self.kept.append(function)
        self.sim.ok("cuLaunchHostFunc", stream, function, None)


@pytest.fixture
def recorder(sim: Simulator) -> Recorder:
    return Recorder(sim)


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def test_queued_work_stays_on_one_thread_and_lets_its_waiter_sleep(sim: Simulator, recorder: Recorder) -> None:
    def switches() -> int:
        lines = Path(f"/proc/self/task/{threading.get_native_id()}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))

    def synchronise() -> None:
        before = switches()
        sim.ok("cuCtxSetCurrent", context)
        waiting.set()
        sim.ok("cuStreamSynchronize", stream)
        slept.append(switches() - before)

    stream, gate, waiting = sim.stream(), threading.Event(), threading.Event()
    context = ctypes.c_void_p()
    sim.ok("cuCtxGetCurrent", ctypes.byref(context))
    threads: list[int] = []
    slept: list[int] = []
    recorder.launch(stream, "first", gate)
    work = HOST_FN(lambda _: threads.append(threading.get_native_id()))
    for _ in range(500):
        sim.ok("cuLaunchHostFunc", stream, work, None)
    waiter = threading.Thread(target=synchronise)
    waiter.start()
    assert waiting.wait(PATIENCE_S)
    gate.set()
    waiter.join(PATIENCE_S)
    assert len(threads) == 500
    assert sum(one != other for one, other in pairwise(threads)) < 100
    assert slept[0] < 100


ONE_STREAM = """
import ctypes, os
from pathlib import Path
from tests.vgpusim.device.conftest import PRIVATE, Simulator, open_simulator
sim, context = Simulator(open_simulator(Path({path!r}))), ctypes.c_void_p()
sim.ok("cuCtxCreate_v2", ctypes.byref(context), 0, PRIVATE)
stream, fill, address = sim.stream(1), sim.kernel("fill"), sim.alloc(8)
values = [ctypes.c_uint64(address), ctypes.c_uint64(5)]
params = (ctypes.c_void_p * 2)(*map(ctypes.addressof, values))
def launch():
    sim.ok("cuLaunchKernel", fill, *[1] * 6, 0, stream, params, None)
sim.lib.vgx_sim_set_threads(1)
before = len(os.listdir("/proc/self/task"))
for burst in range(1000):
    for _ in range(burst % 4 + 1):
        launch()
    sim.ok("cuStreamSynchronize", stream)
assert len(os.listdir("/proc/self/task")) == before + 2  # the stream's and the watchdog
"""


def test_the_launches_of_one_stream_need_one_thread(library_path: Path) -> None:
    """In a process of its own: other tests' threads stay."""
    subprocess.run([sys.executable, "-c", ONE_STREAM.format(path=str(library_path))], check=True, timeout=PATIENCE_S)


def test_each_stream_with_work_has_a_thread(sim: Simulator) -> None:
    """Work that waits for that of all other streams does not wait for one of their threads."""
    count, rounds = 8, 50
    streams, fill, a = [sim.stream(NON_BLOCKING) for _ in range(count)], sim.kernel("fill"), sim.alloc(8)
    values = [ctypes.c_uint64(a), ctypes.c_uint64(5)]
    params = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
    meeting, broken = threading.Barrier(count), []

    def meet(_: int | None) -> None:
        try:
            meeting.wait(PATIENCE_S)
        except threading.BrokenBarrierError:
            broken.append(True)

    function = HOST_FN(meet)
    for turn in range(rounds):
        for i, stream in enumerate(streams):
            for _ in range((turn + i) % 3):
                sim.ok("cuLaunchKernel", fill, 1, 1, 1, 1, 1, 1, 0, stream, params, None)
            sim.ok("cuLaunchHostFunc", stream, function, None)
        if turn % 2:
            sim.ok("cuCtxSynchronize")
    sim.ok("cuCtxSynchronize")
    assert not broken


def test_a_stream_is_a_fifo(sim: Simulator, recorder: Recorder) -> None:
    stream = sim.stream()
    for i in range(200):
        recorder.launch(stream, str(i))
    sim.ok("cuStreamSynchronize", stream)
    assert recorder.log == [str(i) for i in range(200)]


def test_legacy_stream_and_blocking_streams_wait_for_each_other(sim: Simulator, recorder: Recorder) -> None:
    gate, one, two = threading.Event(), sim.stream(), sim.stream()
    recorder.launch(one, "one", gate)
    recorder.launch(None, "legacy")
    recorder.launch(two, "two")
    assert sim.cuStreamQuery(two) == NOT_READY, "two comes after the legacy stream, which comes after one"
    time.sleep(0.02)
    assert recorder.log == []
    gate.set()
    sim.ok("cuCtxSynchronize")
    assert recorder.log == ["one", "legacy", "two"]


def test_blocking_streams_run_beside_each_other(sim: Simulator, recorder: Recorder) -> None:
    gate, one, two = threading.Event(), sim.stream(), sim.stream()
    recorder.launch(one, "one", gate)
    recorder.launch(two, "two")
    sim.ok("cuStreamSynchronize", two)
    assert recorder.log == ["two"]
    assert sim.cuStreamQuery(one) == NOT_READY
    gate.set()
    sim.ok("cuStreamSynchronize", one)


def test_non_blocking_stream_ignores_the_legacy_stream(sim: Simulator, recorder: Recorder) -> None:
    gate, free = threading.Event(), sim.stream(NON_BLOCKING)
    recorder.launch(None, "legacy", gate)
    recorder.launch(free, "free")
    sim.ok("cuStreamSynchronize", free)
    assert recorder.log == ["free"]
    gate.set()
    sim.ok("cuStreamSynchronize", None)
    assert recorder.log == ["free", "legacy"]


def test_synchronous_copy_waits_for_blocking_streams_only(sim: Simulator, recorder: Recorder) -> None:
    gate, blocking, free = threading.Event(), sim.stream(), sim.stream(NON_BLOCKING)
    address = sim.alloc(16)
    recorder.launch(free, "free", gate)
    sim.write(address, b"now")  # returns although `free` has work
    recorder.launch(blocking, "blocking", gate)
    threading.Timer(0.02, gate.set).start()
    assert sim.read(address, 3) == b"now"
    assert "blocking" in recorder.log
    sim.ok("cuCtxSynchronize")


def test_event_marks_a_position(sim: Simulator, recorder: Recorder) -> None:
    gate, stream, event = threading.Event(), sim.stream(), sim.event()
    assert sim.cuEventQuery(event) == 0, "never recorded: complete"
    recorder.launch(stream, "before", gate)
    sim.ok("cuEventRecordWithFlags", event, stream, 0)
    recorder.launch(stream, "after")
    assert sim.cuEventQuery(event) == NOT_READY
    gate.set()
    sim.ok("cuEventSynchronize", event)
    assert recorder.log[0] == "before"
    assert sim.cuEventQuery(event) == 0
    sim.ok("cuCtxSynchronize")


def test_wait_event_across_streams_keeps_the_record_it_saw(sim: Simulator, recorder: Recorder) -> None:
    first, one, two, event = threading.Event(), sim.stream(NON_BLOCKING), sim.stream(NON_BLOCKING), sim.event()
    recorder.launch(one, "one", first)
    sim.ok("cuEventRecordWithFlags", event, one, 0)
    sim.ok("cuStreamWaitEvent", two, event, 0)
    recorder.launch(two, "two")
    sim.ok(
        "cuEventRecordWithFlags", event, sim.stream(NON_BLOCKING), 0
    )  # the new record completes at once; `two` waits for the old record
    sim.ok("cuEventSynchronize", event)
    sim.ok("cuEventDestroy_v2", event)
    time.sleep(0.02)
    assert recorder.log == []
    first.set()
    sim.ok("cuStreamSynchronize", two)
    assert recorder.log == ["one", "two"]


def test_elapsed_time(sim: Simulator, recorder: Recorder) -> None:
    start, end, untimed, out = sim.event(), sim.event(), sim.event(DISABLE_TIMING), ctypes.c_float()
    assert sim.cuEventElapsedTime_v2(ctypes.byref(out), start, start) == 400
    sim.ok("cuEventRecordWithFlags", start, None, 0)
    gate = threading.Event()
    recorder.launch(None, "work", gate)
    sim.ok("cuEventRecordWithFlags", end, None, 0)
    assert sim.cuEventElapsedTime_v2(ctypes.byref(out), start, end) == NOT_READY
    sim.ok("cuEventSynchronize", start)  # a busy machine may reach it late
    threading.Timer(0.05, gate.set).start()
    sim.ok("cuEventSynchronize", end)
    sim.ok("cuEventElapsedTime_v2", ctypes.byref(out), start, end)
    assert 40 < out.value < 1000 * PATIENCE_S
    sim.ok("cuEventRecordWithFlags", untimed, None, 0)
    assert sim.cuEventElapsedTime_v2(ctypes.byref(out), start, untimed) == 400


def test_stream_destroyed_with_work_finishes_it(sim: Simulator, recorder: Recorder) -> None:
    gate, stream = threading.Event(), sim.stream()
    recorder.launch(stream, "work", gate)
    sim.ok("cuStreamDestroy_v2", stream)
    gate.set()
    sim.ok("cuCtxSynchronize")
    assert recorder.log == ["work"]


def test_pageable_source_may_be_overwritten_after_the_call(sim: Simulator, recorder: Recorder) -> None:
    gate, stream, address = threading.Event(), sim.stream(NON_BLOCKING), sim.alloc(1 << 20)
    recorder.launch(stream, "work", gate)
    source = ctypes.create_string_buffer(b"a" * (1 << 20), 1 << 20)
    sim.ok("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), source, ctypes.c_size_t(1 << 20), stream)
    ctypes.memset(source, ord("b"), 1 << 20)
    gate.set()
    sim.ok("cuStreamSynchronize", stream)
    assert sim.read(address, 1 << 20) == b"a" * (1 << 20)


def test_synchronous_writes_to_the_device_do_not_wait_for_host_functions(sim: Simulator, recorder: Recorder) -> None:
    """Otherwise a client whose host function waits for a later call of the same client would deadlock."""
    gate, address = threading.Event(), sim.alloc(8192)
    recorder.launch(None, "work", gate)
    source = ctypes.create_string_buffer(b"a" * 4096, 4096)
    sim.ok("cuMemcpyHtoD_v2", ctypes.c_uint64(address), source, ctypes.c_size_t(4096))
    ctypes.memset(source, ord("b"), 4096)
    sim.ok("cuMemcpyDtoD_v2", ctypes.c_uint64(address + 4096), ctypes.c_uint64(address), ctypes.c_size_t(4096))
    sim.ok("cuMemsetD8_v2", ctypes.c_uint64(address), ord("c"), ctypes.c_size_t(1))
    assert recorder.log == []
    gate.set()
    assert sim.read(address, 8192) == b"c" + b"a" * 8191


def test_synchronous_copy_comes_before_later_work_in_non_blocking_streams(sim: Simulator, recorder: Recorder) -> None:
    gate, address, free = threading.Event(), sim.alloc(4096), sim.stream(NON_BLOCKING)
    recorder.launch(None, "work", gate)
    sim.write(address, b"a" * 4096)
    buffer = ctypes.create_string_buffer(4096)
    recorder.launch(free, "free")
    time.sleep(0.02)
    assert recorder.log == []
    gate.set()
    sim.ok("cuMemcpyDtoHAsync_v2", buffer, ctypes.c_uint64(address), ctypes.c_size_t(4096), free)
    assert buffer.raw == b"a" * 4096
    assert recorder.log == ["work", "free"]


def test_wrong_arguments(sim: Simulator) -> None:
    out, stream, event = ctypes.c_void_p(), sim.stream(), sim.event()
    assert sim.cuStreamCreateWithPriority(None, 0, 0) == 1
    assert sim.cuStreamCreateWithPriority(ctypes.byref(out), 99, 0) == 1
    assert sim.cuEventCreate(ctypes.byref(out), 99) == 1
    assert sim.cuStreamWaitEvent(stream, event, 99) == 1
    assert sim.cuLaunchHostFunc(None, None, None) == 1
    assert sim.cuStreamQuery(ctypes.c_void_p(2)) == 0
    assert sim.cuStreamDestroy_v2(None) == 400


def test_sixteen_threads(library: ctypes.CDLL, sim: Simulator) -> None:
    """Every thread copies through its own stream and the legacy one, and finds its own bytes."""
    context, errors = ctypes.c_void_p(), []
    sim.ok("cuCtxGetCurrent", ctypes.byref(context))

    def work(index: int) -> None:
        try:
            sim.ok("cuCtxSetCurrent", context)
            stream, event = sim.stream(index % 2), sim.event()
            for i in range(40):
                address = sim.alloc(4096 * (1 + i % 3))
                data = bytes([index, i]) * 2048
                source = ctypes.create_string_buffer(data, 4096)
                sim.ok("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), source, ctypes.c_size_t(4096), stream)
                sim.ok("cuEventRecordWithFlags", event, stream, 0)
                sim.ok("cuStreamWaitEvent", None, event, 0)
                assert sim.read(address, 4096) == data
                sim.ok("cuMemFree_v2", ctypes.c_uint64(address))
            sim.ok("cuStreamDestroy_v2", stream)
            sim.ok("cuEventDestroy_v2", event)
        except BaseException as error:  # handed to the main thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert not any(thread.is_alive() for thread in threads)


def test_no_wait_outlasts_its_work(sim: Simulator) -> None:
    """Threads wait for streams, events and the context while work of all streams depends on each other's events."""
    streams = [*(sim.stream(i % 2) for i in range(6)), None]
    events = [sim.event(DISABLE_TIMING) for _ in range(8)]
    address, context, errors = sim.alloc(1 << 16), ctypes.c_void_p(), []
    sim.ok("cuCtxGetCurrent", ctypes.byref(context))

    def work(seed: int) -> None:
        try:
            chosen = random.Random(seed)
            sim.ok("cuCtxSetCurrent", context)
            for _ in range(1000):
                stream, event = chosen.choice(streams), chosen.choice(events)
                for _ in range(chosen.randrange(12)):
                    words = ctypes.c_size_t(chosen.choice((1, 1 << 13)))
                    sim.ok("cuMemsetD32Async", ctypes.c_uint64(address), 7, words, stream)
                sim.ok("cuEventRecordWithFlags", event, stream, 0)
                sim.ok("cuStreamWaitEvent", chosen.choice(streams), chosen.choice(events), 0)
                match chosen.randrange(6):
                    case 0 | 1:
                        sim.ok("cuStreamSynchronize", chosen.choice(streams))
                    case 2:
                        sim.ok("cuEventSynchronize", chosen.choice(events))
                    case 3:
                        sim.read(address, 16)
                    case 4 if not chosen.randrange(4):
                        sim.ok("cuCtxSynchronize")
        except BaseException as error:  # handed to the main thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not errors
    assert not any(thread.is_alive() for thread in threads)
