"""vgpud with its real worker: the simulator behind the C executor (`make build` first)."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.daemon.running import (
    ENVIRONMENT,
    ROOT,
    Running,
    only,
    process_exists,
    start_client,
    vgpud_with_real_workers,
    wait_until,
)
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    # A busy machine may need seconds to end a worker, which must not be killed for that.
    yield from vgpud_with_real_workers(tmp_path_factory.mktemp("real"), "limits.worker_exit_timeout_s = 60\n")


def attach(running: Running) -> tuple[socket.socket, int]:
    """A connection that has reached the executor, and its session's number."""
    client = running.client()
    client.hello()
    session = client.attach().worker
    return client.detach(), session


def worker_of(running: Running, session: int) -> int:
    [worker] = [s["worker_pid"] for s in running.status()["sessions"] if s["session"] == session]
    return worker


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<IHHII", 7, 1, 1, 1, 0),
        struct.pack("<IHHII", 2**32 - 8, 1, 1, 1, 0),
        struct.pack("<IHHII", 16, 65535, 1, 1, 0),
        random.Random(1).randbytes(64),
    ],
    ids=["short", "huge", "unknown opcode", "noise"],
)
def test_a_violation_ends_one_session_with_a_reason(running, data):
    (hostile, session), (other, other_session) = attach(running), attach(running)
    with hostile, other:
        hostile.sendall(data)
        assert hostile.recv(1) == b""
        said = running.wait_log(rf'worker ended session={session} worker=\d+ how="exit 1" reason=(.+)')
        assert said[1] != "None"
        assert process_exists(worker_of(running, other_session))
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(1)


def test_a_killed_worker_ends_its_client(running):
    client, session = attach(running)
    with client:
        os.kill(worker_of(running, session), signal.SIGKILL)
        assert client.recv(1) == b""
    wait_until(lambda: running.status()["sessions"] == [])


def test_a_killed_client_ends_its_worker(running):
    process = start_client(running)
    session = only(lambda: running.status()["sessions"])
    process.kill()
    wait_until(lambda: not process_exists(session["worker_pid"]))
    process.communicate()
    running.wait_log(rf'worker ended session={session["session"]} worker=\d+ how="exit 0"')


def test_half_a_record_is_not_waited_for_when_the_client_is_gone(running):
    client, session = attach(running)
    worker = worker_of(running, session)
    with client:
        client.sendall(struct.pack("<IHH", 4096, 1, 1))
    wait_until(lambda: not process_exists(worker))


PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
print("working", flush=True)
sys.stdin.read()
print(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
"""


def test_ctrl_c_is_vgpuds_alone(start):
    """A terminal's ^C goes to the foreground group: vgpud ends its workers itself, and their clients get an error."""
    own = start(worker=None)
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(ROOT / "build/guest/libcuda.so.1")],
        env=ENVIRONMENT | {"VGPU_ENDPOINT": str(own.endpoint), "VGPU_LOG": "error"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout.readline() == "working\n"
    session = only(lambda: own.status()["sessions"])
    workers = [session["worker_pid"], *own.status()["spare_workers"]]
    os.killpg(own.process.pid, signal.SIGINT)
    assert own.process.wait(PATIENCE_S) == 0
    assert not [pid for pid in workers if process_exists(pid)]
    out, err = program.communicate(timeout=PATIENCE_S)
    assert out == "46\n"  # CUDA_ERROR_DEVICE_UNAVAILABLE
    assert "session lost: the worker closed the connection" in err
    assert re.search(rf"worker ended session=\d+ worker={session['worker_pid']} how=\"signal SIGKILL\"", own.log)
    assert "KeyboardInterrupt" not in own.log
    assert not re.search(r"\[(warning|error) *\]|worker says", own.log), own.log


def test_a_drain_ends_real_workers(start):
    own = start(worker=None)
    client, _ = attach(own)
    with client:
        own.process.terminate()
        own.wait_log("draining")
        own.process.terminate()  # a second signal ends the drain
        assert own.process.wait(PATIENCE_S) == 0
        assert client.recv(1) == b""
