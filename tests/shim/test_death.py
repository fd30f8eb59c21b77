"""The worker or vgpud is killed while nine threads are inside calls of every kind: each thread gets the error."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.daemon.running import Running, vgpud_with_real_workers, wait_until
from tests.shim.client import environment
from tests.shim.faults import Host, finish, hear

# Each thread continues until a call fails; the error must be 46, the loss of the session.
PROGRAM = """
HOST = ctypes.CFUNCTYPE(None, c_void_p)
one, endless = kernel("add_one"), kernel("endless")
MIB = 1 << 20
held, quiet = new(cuda.cuStreamCreate, 1), new(cuda.cuStreamCreate, 1)
e = new(cuda.cuEventCreate, 2)
noted = HOST(lambda _: None)
big = alloc(32 * MIB)

def launches(t): return launch(one, t)
def waits(t): return launch(one, t) or cuda.cuStreamSynchronize(t)
def waits_for_ever(t): return cuda.cuStreamSynchronize(held)
def waits_for_event(t): return cuda.cuEventSynchronize(e)
def uploads(t, data=bytes(32 * MIB)): return cuda.cuMemcpyHtoD_v2(big, data, c_size_t(len(data)))
def downloads(t, back=create_string_buffer(32 * MIB)):
    return cuda.cuMemcpyDtoHAsync_v2(back, big, c_size_t(32 * MIB), t)
def calls_back(t): return cuda.cuLaunchHostFunc(t, noted, None) or cuda.cuStreamSynchronize(t)
def asks(t):
    q = c_uint64()
    return (cuda.cuMemAlloc_v2(byref(q), c_size_t(64)) or cuda.cuMemFree_v2(q)
            or cuda.cuModuleLoadData(byref(c_void_p()), PTX))
def replays(t): return cuda.cuGraphLaunch(copies, t)
kinds = [launches, waits, waits_for_ever, waits_for_event, uploads, downloads, calls_back, asks]
if not os.environ.get("VGT_PRELOAD"): kinds.append(replays)  # `make tsan` has no pinned memory for its copies

def graph_of_copies(s, data=create_string_buffer(64)):
    ok(cuda.cuStreamBeginCapture_v2(s, 0))
    ok(cuda.cuMemcpyHtoDAsync_v2(p, data, c_size_t(64), s))
    graph = new(lambda out: cuda.cuStreamEndCapture(s, out))
    return new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))

heard = {}
def loop(kind):
    t = c_void_p()
    result = cuda.cuCtxSetCurrent(ctx) or cuda.cuStreamCreate(byref(t), 1)
    while not result:
        result = kind(t)
    heard[kind.__name__] = result

for turn in range(TURNS):
    if turn:  # whoever lost a session may begin another one
        while cuda.cuDevicePrimaryCtxReset_v2(0) or cuda.cuDevicePrimaryCtxRetain(byref(ctx), 0):
            time.sleep(0.05)
        ok(cuda.cuCtxSetCurrent(ctx))
        module, p, big = new(cuda.cuModuleLoadData, PTX), alloc(1 << 20), alloc(32 * MIB)
        one, endless = kernel("add_one"), kernel("endless")
        held, e = new(cuda.cuStreamCreate, 1), new(cuda.cuEventCreate, 2)
    if replays in kinds: copies = graph_of_copies(held)
    heard.clear()
    ok(launch(endless, held))
    ok(cuda.cuEventRecord(e, held))
    threads = [threading.Thread(target=loop, args=(kind,), daemon=True) for kind in kinds]
    for t in threads: t.start()
    time.sleep(0.3)
    assert not heard, heard
    said("busy")
    for t in threads: t.join()
    assert set(heard.values()) == {46} and len(heard) == len(kinds), heard
    # and so does every call from now on
    assert [launch(one, None), cuda.cuCtxSynchronize(), cuda.cuMemFree_v2(p)] == [46] * 3
    said("all heard")
"""


@pytest.fixture(params=["shared-memory"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from vgpud_with_real_workers(
        tmp_path_factory.mktemp("death"), f"shared_memory = {str(request.param == 'shared-memory').lower()}\n"
    )


def workers(running: Running) -> list[int]:
    return [each["worker_pid"] for each in running.status()["sessions"] if each["worker_pid"]]


@pytest.mark.parametrize(
    ("running", "spin_us"),
    [("shared-memory", "0"), ("shared-memory", "50"), ("socket", "0")],
    ids=["sleeping", "spinning", "socket"],
    indirect=["running"],
)
def test_a_killed_worker_is_heard_of_by_every_thread(running: Running, spin_us: str) -> None:
    """The same holds for the worker of the next session."""
    host = Host(environment(str(running.endpoint), VGPU_SPIN_US=spin_us))
    client = host.start(f"TURNS = 2\n{PROGRAM}")
    killed: list[int] = []
    for _ in range(2):
        hear(client, "busy")
        # vgpud may still list the session of the worker that was killed before
        [worker] = wait_until(lambda: [pid for pid in workers(running) if pid not in killed])
        os.kill(worker, signal.SIGKILL)
        killed.append(worker)
        hear(client, "all heard")
    finish(client)


def test_a_killed_vgpud_is_heard_of_by_every_thread(running: Running) -> None:
    host = Host(environment(str(running.endpoint), VGPU_SPIN_US="20"))
    client = host.start(f"TURNS = 1\n{PROGRAM}")
    hear(client, "busy")
    running.process.kill()
    hear(client, "all heard")
    finish(client)


STALE = """
old, words = p, c_uint()
said("busy")
while not cuda.cuMemcpyDtoH_v2(byref(words), old, c_size_t(4)): time.sleep(0.02)
while cuda.cuDevicePrimaryCtxReset_v2(0) or cuda.cuDevicePrimaryCtxRetain(byref(ctx), 0): time.sleep(0.05)
ok(cuda.cuCtxSetCurrent(ctx))
module = new(cuda.cuModuleLoadData, PTX)
fresh = [alloc(1 << 20) for _ in range(8)]
assert old.value not in [each.value for each in fresh]
assert cuda.cuMemcpyDtoH_v2(byref(words), old, c_size_t(4)) == 1
assert cuda.cuMemFree_v2(old) == 1
p = old
ok(launch(kernel("add_one")))
assert cuda.cuCtxSynchronize() == 700
said("told apart")
"""


def test_AT17_a_pointer_of_a_lost_session_is_not_one_of_the_next(running: Running) -> None:
    """Earlier, the next session's first allocation had the same address, and a stale pointer read zeros from it."""
    client = Host(environment(str(running.endpoint))).start(STALE)
    hear(client, "busy")
    [worker] = wait_until(lambda: workers(running))
    os.kill(worker, signal.SIGKILL)
    hear(client, "told apart")
    finish(client)
