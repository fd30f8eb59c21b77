"""A client that lies in a ring ends its own session, with a reason; others are unaffected (`make build` first)."""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Iterator

import pytest

from tests.daemon.ring_memory import HEADER_NBYTES, NBYTES, OPCODES, SEAL_SHRINK_GROW, RingMemory, open_request
from tests.daemon.running import Running, vgpud_with_real_workers
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path_factory.mktemp("ring"))


class Ring:
    """A session with one open ring."""

    def __init__(self, running: Running) -> None:
        client = running.client()
        client.hello()
        self.session = client.attach().worker
        self.sock = client.detach()
        self.ring = RingMemory(self.sock)

    def __enter__(self) -> Ring:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()
        self.ring.close()

    def push(self, data: bytes, tail: int | None = None) -> None:
        self.ring.memory[HEADER_NBYTES : HEADER_NBYTES + len(data)] = data
        self.ring.publish(len(data) if tail is None else tail)

    def ended(self) -> bool:
        self.sock.settimeout(PATIENCE_S)
        return self.sock.recv(1) == b""


def record(opcode: int, body: bytes = b"", length: int | None = None, flags: int = 0) -> bytes:
    return struct.pack("<IHHII", 16 + len(body) if length is None else length, opcode, flags, 1, 0) + body


@pytest.mark.parametrize(
    ("data", "tail"),
    [
        (record(OPCODES["vgpuTakeOutput"], length=8), None),
        (record(OPCODES["vgpuTakeOutput"], length=2**32 - 8), None),
        (record(OPCODES["vgpuTakeOutput"], bytes(8), length=4 << 20), 8 << 20),
        (record(OPCODES["vgpuTakeOutput"], bytes(8), length=17), None),
        (record(65535), None),
        (record(OPCODES["vgpuRingOpen"], bytes(8)), None),
        (record(OPCODES["vgpuHostMap"], bytes(16)), None),
        (record(OPCODES["vgpuTakeOutput"], bytes(8), flags=2), None),
        (record(OPCODES["vgpuRingFence"], struct.pack("<QII", 1, 7, 0)), None),
        (record(OPCODES["vgpuTakeOutput"]), None),
        (b"", 2**63),
        (b"", 12),
        (random.Random(5).randbytes(4096), None),
    ],
    ids=[
        "length below a header",
        "huge length",
        "length beyond the longest",
        "odd length",
        "unknown opcode",
        "ring in a ring",
        "descriptor in a ring",
        "descriptor flag",
        "fence on no ring",
        "short record",
        "tail far ahead",
        "odd tail",
        "noise",
    ],
)
def test_a_violation_in_a_ring_ends_one_session_with_a_reason(running, data, tail):
    with Ring(running) as other, Ring(running) as hostile:
        hostile.push(data, tail)
        assert hostile.ended()
        said = running.wait_log(rf'worker ended session={hostile.session} worker=\d+ how="exit 1" reason=(.+)')
        assert "protocol violation" in said[1]
        other.push(record(OPCODES["vgpuTakeOutput"], struct.pack("<Q", 8), flags=1))
        other.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            other.sock.recv(1)


@pytest.mark.parametrize(
    ("nbytes", "seals", "number"),
    [
        (4096, SEAL_SHRINK_GROW, 0),
        (NBYTES, 0, 0),
        (NBYTES, SEAL_SHRINK_GROW, 256),
    ],
    ids=["small", "not sealed", "number out of range"],
)
def test_memory_that_is_no_ring_is_refused(running, nbytes, seals, number):
    client = running.client()
    client.hello()
    client.attach()
    message, fd = open_request(nbytes, seals, number)
    with client.detach() as sock:
        socket.send_fds(sock, [message], [fd])
        os.close(fd)
        sock.settimeout(PATIENCE_S)
        assert sock.recv(64) == b""


def test_a_client_that_scribbles_while_it_is_served(running):
    """Random words in the shared header and records while the worker reads: at worst the session ends."""
    rng = random.Random(11)
    with Ring(running) as ring:
        for _ in range(2000):
            ring.ring.memory[rng.randrange(0, 16384)] = rng.randrange(256)
    with Ring(running) as other:
        other.sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            other.sock.recv(1)
