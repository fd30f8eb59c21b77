"""A share's limits on objects: each kind is counted from creation to destruction, for all sessions of a tenant
together; the call that exceeds a limit returns error 2, and a line on standard error names the key."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.daemon.running import Running, only, vgpud_with_real_workers, wait_until
from tests.shim.client import PRELUDE, environment, run

LIMIT = 8
KEYS = ("contexts", "streams", "events", "modules", "graphs", "arrays", "pools")
SHARE = "default_share = 's'\n[[shares]]\nname = 's'\n" + "".join(f"{key} = {LIMIT}\n" for key in KEYS)
COMMON = """
import json
ctx = context()

class Props(ctypes.Structure):
    _fields_ = [("type", c_int), ("handles", c_int), ("location", c_int), ("device", c_int), ("rest", c_uint64 * 8)]

class Array(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("format", c_int), ("channels", c_uint),
                ("flags", c_uint)]

class Node(ctypes.Structure):
    _fields_ = [("words", c_uint64 * 32)]

IMAGE = b".version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry k() { ret; }\\0"
ARRAY = Array(64, 64, 0, 32, 4, 0)

def made(function, *arguments):
    handle = c_uint64()
    return function(byref(handle), *arguments), handle

def library():
    return made(cuda.cuLibraryLoadData, IMAGE, None, None, 0, None, None, 0)

def executable():
    result, graph = made(cuda.cuGraphCreate, 0)
    if result:
        return result, None
    exec_result, handle = made(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))
    ok(cuda.cuGraphDestroy(graph))
    return exec_result, handle

def captured():
    stream = new(cuda.cuStreamCreate, 1)
    result, graph = cuda.cuStreamBeginCapture_v2(stream, 0), None  # the graph is counted from here on
    if result == 0:
        result, graph = made(lambda p: cuda.cuStreamEndCapture(stream, p))
    ok(cuda.cuStreamDestroy_v2(stream))
    return result, graph

def context_without_current():
    result, handle = made(cuda.cuCtxCreate_v2, 0, 0)
    ok(cuda.cuCtxSetCurrent(ctx))
    return result, handle

def destroy_context(handle):
    return cuda.cuCtxDestroy_v2(handle) or cuda.cuCtxSetCurrent(ctx)

# what counts it, how one is made, how one ends, how many others there are at that time
PATHS = {
    "cuCtxCreate": ("contexts", context_without_current, destroy_context, 1),
    "cuStreamCreate": ("streams", lambda: made(cuda.cuStreamCreate, 1), cuda.cuStreamDestroy_v2, 0),
    "cuEventCreate": ("events", lambda: made(cuda.cuEventCreate, 0), cuda.cuEventDestroy_v2, 0),
    "cuEventCreate (interprocess)": ("events", lambda: made(cuda.cuEventCreate, 6), cuda.cuEventDestroy_v2, 0),
    "cuModuleLoadData": ("modules", lambda: made(cuda.cuModuleLoadData, IMAGE), cuda.cuModuleUnload, 0),
    "cuLibraryLoadData": ("modules", library, cuda.cuLibraryUnload, 0),
    "cuGraphCreate": ("graphs", lambda: made(cuda.cuGraphCreate, 0), cuda.cuGraphDestroy, 0),
    "cuGraphInstantiate": ("graphs", executable, cuda.cuGraphExecDestroy, 1),
    "cuStreamEndCapture": ("graphs", captured, cuda.cuGraphDestroy, 0),
    "cuArray3DCreate": ("arrays", lambda: made(cuda.cuArray3DCreate_v2, byref(ARRAY)), cuda.cuArrayDestroy, 0),
    "cuMipmappedArrayCreate": (
        "arrays", lambda: made(cuda.cuMipmappedArrayCreate, byref(ARRAY), 1), cuda.cuMipmappedArrayDestroy, 0
    ),
    "cuMemPoolCreate": (
        "pools", lambda: made(cuda.cuMemPoolCreate, byref(Props(1, 0, 1, 0))), cuda.cuMemPoolDestroy, 0
    ),
}
"""
PATHS = {
    "cuCtxCreate": "contexts",
    "cuStreamCreate": "streams",
    "cuEventCreate": "events",
    "cuEventCreate (interprocess)": "events",
    "cuModuleLoadData": "modules",
    "cuLibraryLoadData": "modules",
    "cuGraphCreate": "graphs",
    "cuGraphInstantiate": "graphs",
    "cuStreamEndCapture": "graphs",
    "cuArray3DCreate": "arrays",
    "cuMipmappedArrayCreate": "arrays",
    "cuMemPoolCreate": "pools",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path_factory.mktemp("quota"), SHARE)


def run_alone(running: Running, program: str, **changes: str) -> str:
    """Wait until the tenant has no session, then run a program."""
    wait_until(lambda: running.admin.get("sessions")["sessions"] == [])
    return run(str(running.endpoint), f"LIMIT = {LIMIT}\n{COMMON}{program}", timeout_s=120, **changes)


@pytest.mark.parametrize("path", PATHS)
def test_every_way_of_making_one_is_counted(running: Running, path: str) -> None:
    run_alone(
        running,
        f"""
key, make, end, before = PATHS[{path!r}]
room = LIMIT - before
held = []
for _ in range(room):
    result, handle = make()
    ok(result)
    held.append(handle)
for _ in range(3):
    assert make()[0] == 2, "over the quota"
for _ in range(5):
    ok(end(held.pop()))  # a place is free at once
    result, handle = make()
    ok(result)
    held.append(handle)
for handle in held:
    ok(end(handle))
for _ in range(room):
    ok(make()[0])
""",
    )


def test_sessions_of_a_tenant_are_counted_together_and_shown(running: Running) -> None:
    wait_until(lambda: running.admin.get("sessions")["sessions"] == [])
    hold = f"LIMIT = {LIMIT}\n{COMMON}\nheld = [new(cuda.cuEventCreate, 0) for _ in range(5)]\n"
    hold += "print('held', flush=True)\nsys.stdin.readline()\n"
    with subprocess.Popen(
        [sys.executable, "-c", PRELUDE + hold],
        env=environment(str(running.endpoint)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        session = only(lambda: running.admin.get("sessions")["sessions"])
        assert session["quotas"]["events"] == {"used": 5, "limit": LIMIT}
        assert session["quotas"]["contexts"] == {"used": 1, "limit": LIMIT}
        assert session["quotas"]["streams"] == {"used": 0, "limit": LIMIT}
        assert session["quotas"]["compile_ns"]["limit"] is None
        two = "\n".join(
            (
                "assert [made(cuda.cuEventCreate, 0)[0] for _ in range(5)] == [0, 0, 0, 2, 2]",
                "ok(cuda.cuCtxSynchronize())  # and no error is left behind",
            )
        )
        run(str(running.endpoint), f"LIMIT = {LIMIT}\n{COMMON}\n{two}")
        process.communicate("\n")
    assert (
        run_alone(running, "print([made(cuda.cuEventCreate, 0)[0] for _ in range(9)])")
        == "[0, 0, 0, 0, 0, 0, 0, 0, 2]\n"
    )
    text = running.admin.metrics()
    assert re.search(r'vgpu_tenant_quota_refusals_total\{quota="events",tenant="uid:\d+"\} [3-9]', text), text


def test_a_place_that_another_thread_has_freed_is_free(running: Running) -> None:
    """Each thread's destroy calls travel in that thread's ring; a later create call must not execute before them."""
    run_alone(
        running,
        """
held = [new(cuda.cuEventCreate, 0) for _ in range(LIMIT)]
streams = [new(cuda.cuStreamCreate, 1) for _ in range(2)]
failed = []
def turn(n):
    try:
        ok(cuda.cuCtxSetCurrent(ctx))
        ok(cuda.cuEventRecord(held[n], streams[n % 2]))
        ok(cuda.cuEventDestroy_v2(held[n]))
        held[n] = None
    except BaseException as error:
        failed.append(error)
for _ in range(40):
    for n in range(LIMIT):
        thread = threading.Thread(target=turn, args=(n,))
        thread.start()
        thread.join()
        assert not failed, failed
        result, handle = made(cuda.cuEventCreate, 0)
        assert result == 0, (result, n)
        held[n] = handle
""",
    )


def test_what_a_context_takes_with_it_is_free(running: Running) -> None:
    run_alone(
        running,
        """
for _ in range(3):
    result, other = made(cuda.cuCtxCreate_v2, 0, 0)
    ok(result)
    for key in ("cuStreamCreate", "cuEventCreate", "cuModuleLoadData", "cuArray3DCreate"):
        make = PATHS[key][1]
        assert [make()[0] for _ in range(LIMIT + 1)] == [0] * LIMIT + [2], key
    ok(cuda.cuCtxDestroy_v2(other))
    ok(cuda.cuCtxSetCurrent(ctx))
""",
    )


def test_the_person_is_told_once_which_key_it_was(running: Running) -> None:
    wait_until(lambda: running.admin.get("sessions")["sessions"] == [])
    program = "for _ in range(LIMIT + 4):\n    made(cuda.cuStreamCreate, 1)\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{PRELUDE}LIMIT = {LIMIT}\n{COMMON}{program}"],
        env=environment(str(running.endpoint)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "streams in share s" in line]
    assert len(told) == 1, done.stderr
    assert f"may have {LIMIT} streams here" in told[0]
    assert json.dumps(done.stderr).count("error 2") <= 1
