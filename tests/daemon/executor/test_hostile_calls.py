"""Clients that lie, flood, stop and vanish in the data plane: at worst their own session ends, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.hostile_session import CONTEXT, PINNED, SECOND_STREAM, STREAM, HostileSession
from tests.daemon.ring_memory import (
    HEADER_NBYTES,
    NBYTES,
    RECORDS_NBYTES,
    SEAL_SHRINK_GROW,
    RingMemory,
    open_request,
)
from tests.daemon.running import ENVIRONMENT, Running, vgpud_with_real_workers, wait_until

EXECUTOR_THREADS = 512  # vgx_serve.h
FOREVER = 2**64 - 1
INVALID_VALUE, OUT_OF_MEMORY, INVALID_HANDLE, ILLEGAL_ADDRESS = 1, 2, 400, 700
GONE = "client closed while its calls were being executed"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path_factory.mktemp("hostile"), "[limits]\nspare_workers = 1\n")


@pytest.fixture(scope="module")
def other(running: Running) -> Iterator[HostileSession]:
    """A well-behaved client that stays connected during all tests of the module."""
    with HostileSession(running) as session:
        yield session


class Footprint:
    """What vgpud holds: sessions, workers, threads, descriptors."""

    def __init__(self, running: Running) -> None:
        pid = running.process.pid
        status = running.status()
        self.sessions = len(status["sessions"])
        self.workers = status["workers"]
        self.has_more_threads = len(os.listdir(f"/proc/{pid}/task")) > 2  # the main thread and one that verifies images
        cached = running.status()["metrics"]["images_held"]  # each cached image is a descriptor
        self.descriptors = len(os.listdir(f"/proc/{pid}/fd")) - cached

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"Footprint({vars(self)})"


@pytest.fixture(autouse=True)
def nothing_stays(running: Running, other: HostileSession) -> Iterator[None]:
    """Before and after each test: the other client is served, and vgpud holds the same resources."""
    assert other.is_served()
    wait_until(lambda: len(running.status()["spare_workers"]) == 1)  # one that is being started has more descriptors
    before = Footprint(running)
    yield
    assert other.is_served()
    with contextlib.suppress(AssertionError):
        wait_until(lambda: Footprint(running) == before)
    assert Footprint(running) == before


# --- calls that never end ---


def test_a_fence_on_what_never_comes_does_not_outlive_its_client(running):
    """The only thread that would read the client's end of file waits in the fence."""
    with HostileSession(running, begin=False) as hostile:
        RingMemory(hostile.sock).close()
        hostile.send("vgpuRingFence", context=0, executed=FOREVER, ring=0)
    assert hostile.ended() == ("exit 0", GONE)


def test_a_fence_of_a_ring_on_itself_does_not_outlive_its_client(running):
    with HostileSession(running, begin=False) as hostile:
        ring = RingMemory(hostile.sock)
        ring.push(hostile.record("vgpuRingFence", context=0, executed=FOREVER, ring=0))
        ring.close()
    assert hostile.ended() == ("exit 0", "client closed")


@pytest.mark.parametrize("answered", [True, False], ids=["waited for by every thread", "queued"])
def test_an_endless_kernel_goes_with_its_client(running, answered):
    """The kernel is waited for by the thread that reads the socket alone, or by as many threads as there may be."""
    with HostileSession(running) as hostile:
        hostile.launch("endless")
        if answered:
            waits = [hostile.record("cuStreamSynchronize", hStream=STREAM) for _ in range(EXECUTOR_THREADS + 8)]
            hostile.sock.sendall(b"".join(waits))
        else:
            hostile.send_queued("cuStreamSynchronize", hStream=STREAM)
        time.sleep(0.2)  # time to reach the wait; the session must end cleanly in either case
    assert hostile.ended() == ("exit 0", GONE)


@pytest.mark.parametrize("threads", [1, EXECUTOR_THREADS + 8], ids=["one", "every thread"])
def test_a_wait_for_a_word_that_nobody_writes_goes_with_its_client(running, threads):
    """What waits for the stream may never return: the end of the worker's process ends it."""
    with HostileSession(running) as hostile:
        hostile.wait_for_a_word()
        for _ in range(threads):
            hostile.send("cuStreamSynchronize", hStream=STREAM)
    how, _ = hostile.ended()
    assert how == "exit 0"


def test_callbacks_that_nobody_runs_go_with_their_client(running):
    with HostileSession(running) as hostile:
        for number in range(100):
            hostile.send("vgpuHostCallback", callback=number % 3, hStream=STREAM)
        hostile.send("vgpuCallbackDone", callback=77)
        hostile.send_queued("vgpuNextCallback")
        hostile.send_queued("vgpuNextCallback")
        hostile.send_queued("cuCtxSynchronize")
    assert hostile.ended() == ("exit 0", GONE)


# --- flags that the device writes ---


@pytest.mark.parametrize(
    "address",
    [0, 8, PINNED + 1, PINNED + 2, PINNED - 4, PINNED + 4096, PINNED + 4094, 2**64 - 4, "device memory"],
)
def test_a_flag_outside_pinned_memory_is_a_violation(running, address):
    with HostileSession(running) as hostile:
        hostile.map_pinned().close()
        if address == "device memory":
            address = hostile.memory
        hostile.send("vgpuStreamFlag", address=address, value=7, hStream=STREAM)
        assert hostile.ended() == ("exit 1", "protocol violation: a flag outside pinned memory")


def test_a_flag_in_a_stream_that_was_never_made_is_a_violation(running):
    with HostileSession(running) as hostile:
        hostile.map_pinned().close()
        hostile.send("vgpuStreamFlag", address=PINNED, value=7, hStream=99)
        assert hostile.ended() == ("exit 1", "protocol violation: a handle that was never made")


def test_a_flag_in_a_stream_that_is_gone_is_an_error_of_the_next_wait(running):
    with HostileSession(running) as hostile, hostile.map_pinned() as pinned:
        hostile.send("cuStreamDestroy_v2", hStream=STREAM)
        hostile.send("vgpuStreamFlag", address=PINNED, value=7, hStream=STREAM)
        assert hostile.call("cuCtxSynchronize")[0] == INVALID_HANDLE
        assert pinned[:4] == bytes(4)
        assert hostile.is_served()


def test_a_flood_of_flags_is_written_in_order(running):
    with HostileSession(running) as hostile, hostile.map_pinned() as pinned:
        count = 20_000
        flags = [
            hostile.record("vgpuStreamFlag", address=PINNED + 4 * (value % 8), value=value, hStream=1 + value % 2)
            for value in range(1, count + 1)
        ]
        hostile.sock.sendall(b"".join(flags))
        hostile.ok("cuCtxSynchronize")
        assert sorted(struct.unpack_from("<8I", pinned)) == list(range(count - 7, count + 1))


def test_a_graph_gets_no_second_handle(running):
    """With two, the destruction of one would end what a record of another ring uses by the other."""
    with HostileSession(running) as hostile:
        hostile.ok("vgpuCaptureBegin", hStream=STREAM, graph=1)
        hostile.send("cuStreamEndCapture", hStream=STREAM, phGraph=2)
        assert hostile.ended() == ("exit 1", "protocol violation: the end of a capture whose graph has a handle")


def test_a_graph_that_moved_ends_with_its_node(running):
    """A client can neither move a graph twice nor into itself, nor exchange nodes of two graphs."""
    moved, other, outer = 1, 2, 3
    with HostileSession(running) as hostile:
        for graph in (moved, other, outer):
            hostile.ok("cuGraphCreate", phGraph=graph)
            hostile.ok("cuGraphAddEmptyNode", phGraphNode=graph, hGraph=graph)

        def move(graph: int, into: int, node: int) -> int:
            return hostile.call("vgpuGraphMoveChild", phGraphNode=node, hGraph=into, childGraph=graph)[0]

        assert move(moved, moved, 10) == INVALID_VALUE
        assert move(moved, outer, 11) == 0
        assert move(moved, other, 12) == move(outer, moved, 13) == INVALID_VALUE
        assert hostile.call("vgpuGraphSwapNodes", hNode=11, other=moved)[0] == INVALID_VALUE
        hostile.ok("vgpuGraphSwapNodes", hNode=11, other=outer)
        hostile.ok("cuGraphNodeGetType", hNode=moved)
        hostile.ok("cuGraphDestroyNode", hNode=outer)  # the id of the node that owns the graph
        assert hostile.call("cuGraphNodeGetType", hNode=moved)[0] == INVALID_HANDLE
        assert move(other, outer, 14) == 0
        hostile.send_queued("cuGraphDestroy", hGraph=outer)
        assert hostile.call("cuGraphNodeGetType", hNode=other)[0] == INVALID_HANDLE


def test_a_flag_whose_memory_is_gone_is_a_violation(running):
    with HostileSession(running) as hostile:
        hostile.map_pinned().close()
        hostile.ok("vgpuHostUnmap", address=PINNED)
        hostile.send("vgpuStreamFlag", address=PINNED, value=7, hStream=STREAM)
        assert hostile.ended() == ("exit 1", "protocol violation: a flag outside pinned memory")


def test_a_flag_whose_memory_goes_before_its_stream_is_there_is_not_written(running):
    """The memory is unmapped in another context; that call does not wait for work of this context."""
    with HostileSession(running) as hostile, hostile.map_pinned() as pinned:
        hostile.send("cuMemsetD32Async", dstDevice=hostile.memory, N=1, ui=0, hStream=STREAM)
        hostile.launch("wait", hostile.memory)
        hostile.send("vgpuStreamFlag", address=PINNED, value=7, hStream=STREAM)
        hostile.ok("cuCtxCreate_v2", context=0, pctx=CONTEXT + 1, dev=0)
        hostile.ok("vgpuHostUnmap", context=CONTEXT + 1, address=PINNED)
        hostile.send("cuMemsetD32Async", dstDevice=hostile.memory, N=1, ui=1, hStream=SECOND_STREAM)
        hostile.ok("cuStreamSynchronize", hStream=STREAM)
        assert pinned[:4] == bytes(4)
        assert hostile.is_served()


def test_a_copy_whose_memory_goes_before_its_stream_is_there_is_a_fault_of_its_own(running):
    """Copies in both directions are refused, and the worker survives."""
    with HostileSession(running) as hostile:
        hostile.map_pinned().close()
        hostile.send("cuMemsetD32Async", dstDevice=hostile.memory, N=1, ui=0, hStream=STREAM)
        hostile.launch("wait", hostile.memory)
        copy = {"nbytes": 64, "hStream": STREAM}
        hostile.send("vgpuMemcpyPinnedToHost", dst=PINNED, src=hostile.memory + 64, **copy)
        hostile.send("vgpuMemcpyPinnedToDevice", dst=hostile.memory + 64, src=PINNED, **copy)
        hostile.ok("cuCtxCreate_v2", context=0, pctx=CONTEXT + 1, dev=0)
        hostile.ok("vgpuHostUnmap", context=CONTEXT + 1, address=PINNED)
        hostile.send("cuMemsetD32Async", dstDevice=hostile.memory, N=1, ui=1, hStream=SECOND_STREAM)
        assert hostile.call("cuStreamSynchronize", hStream=STREAM)[0] == ILLEGAL_ADDRESS
    assert hostile.ended() == ("exit 0", "client closed")


# --- images ---


def test_images_that_are_offered_and_never_sent_go_with_their_client(running):
    """Many offers, then an offer beyond the memory limit, then a piece out of order."""
    with HostileSession(running) as hostile:
        for number in range(2, 300):
            digest = {f"digest{i}": number for i in range(4)}
            result, body = hostile.call("vgpuImageOffer", image=number, total=70_000, **digest)
            assert (result, struct.unpack_from("<i", body)[0]) == (0, 0)
        result, _ = hostile.call("vgpuImageOffer", image=300, total=1 << 62, digest0=1)
        assert result == OUT_OF_MEMORY
        hostile.send("vgpuImageWrite", bytes(1024), image=2, total=70_000, offset=4096, nbytes=1024)
        assert hostile.ended() == ("exit 1", "protocol violation: image pieces out of order")


# --- rings ---


def test_positions_that_lie_in_the_workers_words_are_not_believed(running):
    """The client may overwrite `head`, `executed` and `reply`: the worker keeps its own copies of them."""
    with HostileSession(running) as hostile:
        ring = RingMemory(hostile.sock)
        for at in range(64, 192, 4):
            struct.pack_into("<I", ring.memory, at, 0xFFFFFFF0)
        place = HEADER_NBYTES + ring.tail
        record = hostile.record("cuMemsetD32Async", dstDevice=hostile.memory, N=1, ui=5, hStream=SECOND_STREAM)
        ring.memory[place : place + len(record)] = record
        ring.publish(len(record))
        assert wait_until(lambda: hostile.word() == 5)
        ring.close()


@pytest.mark.parametrize("by", [-8, 8, RECORDS_NBYTES, -(2**63)], ids=["back", "ahead", "a round", "far back"])
def test_a_tail_that_moves_while_records_are_taken_ends_one_session(running, by):
    """The tail is valid at first, then it moves back, or ahead over records that were never written."""
    with HostileSession(running) as hostile:
        ring = RingMemory(hostile.sock)
        for _ in range(1000):
            ring.push(hostile.record("cuMemsetD32Async", dstDevice=hostile.memory, N=1, ui=5, hStream=SECOND_STREAM))
        wait_until(lambda: ring.word(64) == ring.tail)
        ring.publish((ring.tail + by) % 2**64)
        how, why = hostile.ended()
        assert how == "exit 1"
        assert "protocol violation" in why
        ring.close()


def test_a_ring_whose_memory_is_taken_away_ends_one_session(running):
    """The file cannot shrink, but its pages can be removed: the worker then reads zeros, which is not a record."""
    with HostileSession(running) as hostile:
        ring = RingMemory(hostile.sock)
        ring.memory.madvise(9)  # MADV_REMOVE: punches a hole
        ring.publish(64)
        assert hostile.ended() == ("exit 1", "protocol violation: record length in a ring")
        ring.close()


def test_rings_to_the_last_one_go_with_their_client(running):
    """256 rings, each with a thread; one more is refused as a violation."""
    with HostileSession(running, begin=False) as hostile:
        RingMemory(hostile.sock).close()

        for number in range(1, 257):
            message, fd = open_request(NBYTES, SEAL_SHRINK_GROW, number)
            socket.send_fds(hostile.sock, [message], [fd])
            os.close(fd)
            if number < 256:
                assert hostile.reply()[0] == 0
    assert hostile.ended() == ("exit 1", "protocol violation: ring")


# --- clients that stop or die in the middle ---

CLIENT = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from tests.shim.client import PRELUDE
exec(PRELUDE)
context()
size = 48 << 20
big, source = alloc(size), bytes(size)
print("ready", flush=True)
while True:
    {body}
"""
BODIES = {
    "uploading": "ok(cuda.cuMemcpyHtoD_v2(big, source, c_size_t(size)))",
    "downloading": "ok(cuda.cuMemcpyDtoH_v2(create_string_buffer(size), big, c_size_t(size)))",
    "filling its ring": "ok(cuda.cuMemsetD32Async(big, c_uint(1), c_size_t(1 << 20), None))",
    "sending an image": "cuda.cuModuleLoadData(byref(c_void_p()), b'.version 7.5 //' + b'x' * (3 << 20))",
}


def start(running: Running, doing: str) -> subprocess.Popen[str]:
    """An honest client in a process of its own, busy for ever."""
    program = CLIENT.format(path=ENVIRONMENT["PYTHONPATH"].split(os.pathsep), body=BODIES[doing])
    environment = ENVIRONMENT | {"VGPU_ENDPOINT": str(running.endpoint), "VGPU_SPIN_US": "20"}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("doing", BODIES)
def test_a_client_that_is_stopped_and_killed_in_the_middle(running, other, doing):
    """A stopped client keeps its ring and worker and delays no other client; once it is killed, both are freed."""
    before = running.status()["workers"]
    process = start(running, doing)
    try:
        time.sleep(0.3)  # the client is in the middle of its work
        process.send_signal(signal.SIGSTOP)
        for _ in range(5):
            assert other.is_served()
        assert running.status()["workers"] > before
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert not Path(f"/proc/{process.pid}").exists()
