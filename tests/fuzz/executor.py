"""Hostile clients of the executor: `python -m tests.fuzz.executor SECONDS` (`make fuzz`).

Whatever a client sends, its worker ends by itself (a violation, or the client's end), never by a signal, and everyone
else is served. A failure names the seed; `python -m tests.fuzz.executor 1 SEED` repeats it.
"""

import contextlib
import random
import re
import secrets
import select
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemon.ring_memory import RingMemory
from tests.daemon.running import Running
from tests.fuzz.stream import HEADER, Stream

REQUESTS = 1000
REPLY_TIMEOUT_S = 20.0
END_TIMEOUT_S = 20.0
SCRIBBLES = 0.02  # of requests in a ring come with a changed byte somewhere


@contextmanager
def hostile_host() -> Iterator[Running]:
    """A vgpud on a simulated H100, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="vgpu-fuzz-") as name:
        folder = Path(name)
        config = folder / "vgpud.toml"
        config.write_text(
            f"listen = ['unix:{folder}/vgpud.sock']\nadmin = '{folder}/admin.sock'\ncache_dir = '{folder}/cache'\n"
        )
        running = Running.start(config, folder, "log")
        try:
            running.wait_ready()
            yield running
        finally:
            running.end()


def receive(connection: socket.socket, nbytes: int) -> bytes:
    data = b""
    while len(data) < nbytes:
        piece = connection.recv(nbytes - len(data))
        if not piece:
            raise ConnectionError("the worker hung up")
        data += piece
    return data


def reply(connection: socket.socket, sequence: int) -> bytes:
    """The body of the reply to `sequence`, which is the only one due."""
    length, _, _, answered, result = HEADER.unpack(receive(connection, HEADER.size))
    body = receive(connection, length - HEADER.size)
    assert (answered, result) == (sequence, 0), f"request {sequence}: reply to {answered}, result {result}"
    return body


def hang_up(connection: socket.socket) -> None:
    """Take what the worker says; notice when it says nothing any more."""
    while select.select([connection], [], [], 0)[0]:
        if not connection.recv(1 << 16):
            raise ConnectionError("the worker hung up")


def through_the_socket(connection: socket.socket, stream: Stream) -> None:
    for _ in range(REQUESTS):
        connection.sendall(stream.request())
        hang_up(connection)


def through_a_ring(connection: socket.socket, stream: Stream, seed: int) -> None:
    """The same requests in shared memory, which is scribbled over now and then while the worker reads it."""
    rng = random.Random(seed)
    memory = RingMemory(connection)
    try:
        for _ in range(REQUESTS):
            memory.push(stream.request(), REPLY_TIMEOUT_S)
            if rng.random() < SCRIBBLES:
                memory.memory[rng.randrange(128, 4096 + 65536)] = rng.randrange(256)
            hang_up(connection)
    finally:
        memory.close()


def attack(running: Running, seed: int, ring: bool = False) -> str:
    """One session of random requests, on the socket or in a ring; how its worker ended, as vgpud says.

    Raises:
        AssertionError: the worker was killed by a signal, did not end, or left vgpud unable to serve.
    """
    client = running.client(timeout_s=END_TIMEOUT_S)
    client.hello()
    session = client.attach().worker
    stream = Stream(seed)
    with client.detach() as connection, contextlib.suppress(ConnectionError, TimeoutError):
        connection.settimeout(REPLY_TIMEOUT_S)
        for sequence, request in stream.opening():
            connection.sendall(request)
            body = reply(connection, sequence) if sequence else b""
            if len(body) == 8:
                stream.addresses.append(struct.unpack("<Q", body)[0])
        if ring:
            through_a_ring(connection, stream, seed)
        else:
            through_the_socket(connection, stream)
    pattern = rf'worker ended session={session} worker=\d+ how="?([^"\n]+?)"? reason=([^\n]+)'
    ended = running.wait_log(pattern, END_TIMEOUT_S)
    assert re.fullmatch(r"exit [01]", ended[1]), f"seed {seed}: the worker ended by {ended[1]}: {ended[2]}"
    with running.client(timeout_s=END_TIMEOUT_S) as other:
        other.hello()
        assert other.ping() < END_TIMEOUT_S
    return ended[2].strip('"')


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seeds = [int(argument) for argument in sys.argv[2:]]
    deadline = time.monotonic() + seconds
    reasons: dict[str, int] = {}
    with hostile_host() as running:
        while seeds or time.monotonic() < deadline:
            seed = seeds.pop() if seeds else secrets.randbelow(1 << 32)
            reason = attack(running, seed, ring=bool(seed % 2))
            reasons[reason] = reasons.get(reason, 0) + 1
            if len(sys.argv) > 2 and not seeds:
                break
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
        print(f"{count:6} {reason}")


if __name__ == "__main__":
    main()
