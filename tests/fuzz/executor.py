"""Hostile clients of the executor: `python -m tests.fuzz.executor SECONDS [--jobs N] [--frames N]` (`make fuzz`).

Whatever a client sends, its worker exits by itself (after a violation or the client's end), never by a signal, and all
other clients are served. Each job has a vgpud of its own; `--frames` ends the run after that many frames. A failure
names the seed; `python -m tests.fuzz.executor 1 SEED` repeats it.
"""

import argparse
import contextlib
import random
import re
import secrets
import select
import socket
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from vgpud._gen.api import HEADER

from tests.daemon.ring_memory import RingMemory
from tests.daemon.running import Running
from tests.fuzz.stream import Stream

REQUESTS = 1000
REPLY_TIMEOUT_S = 20.0
SCRIBBLES = 0.02  # share of requests in a ring after which a byte of the ring's memory is changed


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
    """Discard what the worker has sent; raise ConnectionError if the worker has closed the connection."""
    while select.select([connection], [], [], 0)[0]:
        if not connection.recv(1 << 16):
            raise ConnectionError("the worker hung up")


def through_the_socket(connection: socket.socket, stream: Stream) -> Iterator[None]:
    """Send random requests on the socket; yields after each request."""
    for _ in range(REQUESTS):
        connection.sendall(stream.request())
        yield
        hang_up(connection)


def through_a_ring(connection: socket.socket, stream: Stream, seed: int) -> Iterator[None]:
    """The same requests in shared memory, which is overwritten at random places while the worker reads it."""
    rng = random.Random(seed)
    memory = RingMemory(connection)
    try:
        for _ in range(REQUESTS):
            memory.push(stream.request(), REPLY_TIMEOUT_S)
            yield
            if rng.random() < SCRIBBLES:
                memory.memory[rng.randrange(128, 4096 + 65536)] = rng.randrange(256)
            hang_up(connection)
    finally:
        memory.close()


def attack(running: Running, seed: int, ring: bool = False) -> tuple[str, int]:
    """Run one session of random requests, on the socket or in a ring; return why its worker ended, as vgpud logs it,
    and how many requests were sent.

    Raises:
        AssertionError: the worker was killed by a signal, did not end, or left vgpud unable to serve.
    """
    client = running.client()
    client.hello()
    session = client.attach().worker
    stream, sent = Stream(seed), 0
    with client.detach() as connection, contextlib.suppress(ConnectionError, TimeoutError):
        connection.settimeout(REPLY_TIMEOUT_S)
        for sequence, request in stream.opening():
            connection.sendall(request)
            body = reply(connection, sequence) if sequence else b""
            if len(body) == 8:
                stream.addresses.append(struct.unpack("<Q", body)[0])
        requests = through_a_ring(connection, stream, seed) if ring else through_the_socket(connection, stream)
        for _ in requests:
            sent += 1
    pattern = rf'worker ended session={session} worker=\d+ how="?([^"\n]+?)"? reason=([^\n]+)'
    ended = running.wait_log(pattern)
    assert re.fullmatch(r"exit [01]", ended[1]), f"seed {seed}: the worker ended by {ended[1]}: {ended[2]}"
    with running.client() as other:
        other.hello()
        other.ping()
    return ended[2].strip('"'), sent


def attacks(seconds: float, seeds: list[int], frames: int) -> tuple[int, Counter[str]]:
    """Run sessions until a bound is reached (or each of `seeds` once); return the frames sent and why workers ended."""
    begun, sent, reasons, given = time.monotonic(), 0, Counter[str](), len(seeds)
    with hostile_host() as running:
        while sum(reasons.values()) < given if given else sent < frames and time.monotonic() - begun < seconds:
            seed = seeds.pop() if seeds else secrets.randbelow(1 << 32)
            reason, count = attack(running, seed, ring=bool(seed % 2))
            reasons[reason] += 1
            sent += count
    return sent, reasons


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.fuzz.executor")
    parser.add_argument("seconds", type=float, nargs="?", default=60.0)
    parser.add_argument("seeds", type=int, nargs="*", help="repeat these sessions, and that is all")
    parser.add_argument("--frames", type=int, default=1 << 62, help="in all jobs together")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    begun, each = time.monotonic(), -(-given.frames // given.jobs)
    with ProcessPoolExecutor(given.jobs) as pool:
        started = [pool.submit(attacks, given.seconds, given.seeds, each) for _ in range(given.jobs)]
        done = [job.result() for job in started]
    reasons = sum((ended for _, ended in done), Counter())
    for reason, count in reasons.most_common():
        print(f"{count:6} {reason}")
    sent = sum(count for count, _ in done)
    print(f"{sent} frames in {sum(reasons.values())} sessions, {time.monotonic() - begun:.0f} s; no worker by a signal")


if __name__ == "__main__":
    main()
