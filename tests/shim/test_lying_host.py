"""A host that lies in a ring's words and replies can make the client's calls fail or wait, but never harm the client.

A proxy between client and vgpud keeps the rings' memory and overwrites the parts that the worker writes.
"""

from __future__ import annotations

import array
import contextlib
import mmap
import os
import random
import signal
import socket
import subprocess
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.ring_memory import HEADER_NBYTES, NBYTES, RECORDS_NBYTES
from tests.daemon.running import Running, vgpud_with_real_workers
from tests.patience import PATIENCE_S
from tests.shim.client import PRELUDE, PYTHON, environment

# Offsets in struct vgw_ring of the words that the worker writes.
WORKERS_WORDS = (64, 68, 72, 76, 80, 88, 92, 96, 100, 104, 108, 128, 132)
REPLIES = HEADER_NBYTES + RECORDS_NBYTES

# Computes until a call fails; the canary behind every buffer that a reply fills must stay unchanged.
PROGRAM = """
import signal
def guarded(nbytes):
    buffer = create_string_buffer(bytes(nbytes) + b"canary", nbytes + 7)
    return buffer, lambda: buffer.raw[nbytes:nbytes + 6] == b"canary"
try:
    ctx = context()
    p = alloc(1 << 20)
    stream = new(cuda.cuStreamCreate, 1)
    print("ready", flush=True)
    signal.alarm(2)  # a lie may keep it waiting for ever
    while True:
        ok(cuda.cuMemsetD32Async(p, 7, c_size_t(64), stream))
        ok(cuda.cuStreamSynchronize(stream))
        back, intact = guarded(4096)
        result = cuda.cuMemcpyDtoH_v2(back, p, c_size_t(4096))
        assert intact()
        ok(result)
        free, total = c_size_t(), c_size_t()
        ok(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
        image = b".version 7.5\\n.target sm_75\\n.address_size 64\\n.visible .entry k(.param .u64 p) { ret; }"
        module = new(cuda.cuModuleLoadData, image)
        kernel = new(cuda.cuModuleGetFunction, module, b"k")
        value = c_int()
        ok(cuda.cuFuncGetAttribute(byref(value), 0, kernel))
        parameters = (c_void_p * 1)(ctypes.cast(ctypes.pointer(p), c_void_p))
        ok(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, None))
        ok(cuda.cuModuleUnload(module))
except AssertionError as error:
    if not error.args:
        raise
    print("failed", error.args[0], flush=True)
"""


class LyingWire:
    """A proxy that forwards all data and descriptors, and maps the memory of the rings among them."""

    def __init__(self, path: Path, target: str) -> None:
        self.endpoint = f"unix:{path}"
        self._target = target.removeprefix("unix:")
        self.rings: list[mmap.mmap] = []
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for end in (self._listener, *self._ends):
            end.close()
        for ring in self.rings:
            ring.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                host = socket.socket(socket.AF_UNIX)
                self._ends += [client, host]
                host.connect(self._target)
                for ends in ((client, host), (host, client)):
                    self._threads.append(threading.Thread(target=self._pass_on, args=ends, daemon=True))
                    self._threads[-1].start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                data, fds, _, _ = socket.recv_fds(source, 1 << 16, 16)
                if not data:
                    break
                for fd in fds:
                    if os.fstat(fd).st_size == NBYTES:
                        self.rings.append(mmap.mmap(fd, NBYTES))
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
                sent = sink.sendmsg([data], rights)
                sink.sendall(data[sent:])
                for fd in fds:
                    os.close(fd)
            sink.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path_factory.mktemp("lying"))


def lie(ring: mmap.mmap, rng: random.Random) -> None:
    """Overwrite one word with a small, huge or random value, or change it by one bit or by 8."""
    at = rng.choice(WORKERS_WORDS) if rng.random() < 0.5 else REPLIES + 4 * rng.randrange(64)
    word = int.from_bytes(ring[at : at + 4], "little")
    word = rng.choice([0, 1, 0xFFFFFFFF, 0x7FFFFFF8, rng.getrandbits(32), word ^ 1 << rng.randrange(32), word + 8])
    ring[at : at + 4] = (word & 0xFFFFFFFF).to_bytes(4, "little")


@pytest.mark.parametrize("seed", range(2))
def test_a_client_survives_what_its_worker_says(running: Running, tmp_path: Path, seed: int) -> None:
    wire = LyingWire(tmp_path / "wire.sock", str(running.endpoint))
    process = subprocess.Popen(
        [*PYTHON, "-c", PRELUDE + textwrap.dedent(PROGRAM)],
        env=environment(wire.endpoint, VGPU_SPIN_US="0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    heard = process.stdout.readline()
    assert heard == "ready\n", (heard, process.communicate())
    rng = random.Random(seed)
    deadline = time.monotonic() + 4
    while process.poll() is None and time.monotonic() < deadline:
        for ring in wire.rings:
            lie(ring, rng)
        time.sleep(rng.choice([0, 0.0005, 0.005]))
    out, err = process.communicate(timeout=PATIENCE_S)
    assert wire.rings
    wire.close()
    assert process.returncode in (0, -signal.SIGALRM), (process.returncode, out, err)
