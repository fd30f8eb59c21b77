"""Clients, workers and launchers that are killed or stopped, and clients that stop in the middle of a message.

`python -m tests.chaos ROUNDS [--kills] [--jobs N] [--seconds S]` (`make chaos`): after each round vgpud serves a
client, and holds the same resources as before. Each job runs its own vgpud. A failure names its round's seed;
`python -m tests.chaos 1 SEED` repeats that round (with --kills, if that was given).
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import secrets
import signal
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from tests.chaos.audit import SETTLE_S, Holdings, all_gone, launchers_of, processes_of, settled
from tests.daemon.hostile_session import HostileSession
from tests.daemon.running import Running, wait_until
from tests.fuzz.executor import hostile_host


class Client:
    """An attached client in a process of its own: a fork of this one, as a program's start would take most of the time
    of a round.
    """

    def __init__(self, running: Running) -> None:
        self._attached, attached = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                with running.client(timeout_s=200) as client:
                    client.hello()
                    client.attach()
                    os.write(attached, b"+")
                    time.sleep(600)
            finally:
                os._exit(1)
        os.close(attached)
        assert os.read(self._attached, 1), "the client was not served"

    def end(self) -> None:
        """Kill and reap it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._attached)


def worker_of(running: Running, client: Client) -> int:
    [worker] = [each["worker_pid"] for each in running.status()["sessions"] if each["pid"] == client.pid]
    return int(worker)


def kill_the_client(running: Running, _: random.Random) -> None:
    Client(running).end()


def kill_the_worker(running: Running, _: random.Random) -> None:
    client = Client(running)
    os.kill(worker_of(running, client), signal.SIGKILL)
    client.end()


def stop_the_worker(running: Running, _: random.Random) -> None:
    client = Client(running)
    worker = worker_of(running, client)
    os.kill(worker, signal.SIGSTOP)
    running.wait_log(rf"worker ended session=\d+ worker={worker}\b")
    client.end()


def stop_the_client(running: Running, _: random.Random) -> None:
    client = Client(running)
    os.kill(client.pid, signal.SIGSTOP)
    client.end()


def kill_by_name(running: Running, *names: str) -> None:
    client = Client(running)
    found = launchers_of(running.process.pid)
    for pid in (pid for name in names for pid in found[name]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    client.end()
    Client(running).end()


def kill_the_launcher(running: Running, _: random.Random) -> None:
    kill_by_name(running, "vgpu-launcher")


def kill_the_loader(running: Running, _: random.Random) -> None:
    kill_by_name(running, "vgpu-loader")


def kill_launcher_and_loader(running: Running, _: random.Random) -> None:
    kill_by_name(running, "vgpu-loader", "vgpu-launcher")


def kill_the_spares(running: Running, _: random.Random) -> None:
    for spare in running.status()["spare_workers"]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(spare, signal.SIGKILL)
    Client(running).end()  # the client may get a spare that is still dying; vgpud then assigns another one


def half_a_frame(running: Running, rng: random.Random) -> None:
    sock = running.raw()
    sock.sendall(rng.randbytes(rng.randrange(1, 64)))
    sock.close()


def silence(running: Running, _: random.Random) -> None:
    for sock in [running.raw() for _ in range(20)]:
        sock.close()


def half_a_record(running: Running, rng: random.Random) -> None:
    with HostileSession(running) as session:
        record = session.record("cuMemsetD8Async", dstDevice=session.memory, N=64, hStream=1)
        session.sock.sendall(record[: rng.randrange(1, len(record))])


def records_at_random(running: Running, rng: random.Random) -> None:
    with HostileSession(running) as session, contextlib.suppress(OSError):
        session.sock.sendall(rng.randbytes(4096))


def a_kernel_without_end(running: Running, _: random.Random) -> None:
    with HostileSession(running) as session:
        session.launch("endless")


def many_at_once(running: Running, rng: random.Random) -> None:
    clients = [Client(running) for _ in range(rng.randrange(2, 6))]
    for client in rng.sample(clients, len(clients)):
        os.kill(client.pid, rng.choice([signal.SIGKILL, signal.SIGTERM]))
    for client in clients:
        client.end()


DEEDS: list[Callable[[Running, random.Random], None]] = [
    *(kill_the_client, kill_the_worker, stop_the_worker, stop_the_client, kill_the_spares),
    *(kill_the_launcher, kill_the_loader, kill_launcher_and_loader),
    *(half_a_frame, silence, half_a_record, records_at_random, a_kernel_without_end, many_at_once),
]


KILLS = [deed for deed in DEEDS if deed.__name__.startswith("kill_")]  # each sends SIGKILL at least once


@dataclass(frozen=True)
class Round:
    """What was done, and how long vgpud took after it, in seconds."""

    deed: str
    served_s: float  # until it serves a client, and has a spare worker for the next
    recovered_s: float  # until it holds what it held before, too


def spare_again(running: Running) -> float:
    """Wait until vgpud has a worker for the next client; return how long that took, in seconds."""
    begun = time.monotonic()
    wait_until(lambda: running.status()["spare_workers"], SETTLE_S)
    return time.monotonic() - begun


def round_of(running: Running, seed: int, deeds: list[Callable[[Running, random.Random], None]]) -> Round:
    """Do one random deed. Raises AssertionError."""
    rng = random.Random(seed)
    before = Holdings.of(running)
    deed = rng.choice(deeds)
    try:
        deed(running, rng)
        served_s = spare_again(running)
        recovered_s = served_s + settled(running, before)
        with running.client(timeout_s=60) as client:
            client.hello()
            client.attach()
        settled(running, before)
    except BaseException as error:
        raise AssertionError(f"seed {seed}, {deed.__name__}: {error}") from error
    return Round(deed.__name__, served_s, recovered_s)


def chaos(rounds: int, seeds: list[int], *, kills: bool = False, deadline: float = math.inf) -> list[Round]:
    """Do so many rounds, or those that begin before `deadline`, on the monotonic clock. Raises AssertionError."""
    times: list[Round] = []
    with hostile_host() as running:
        wait_until(lambda: len(running.status()["spare_workers"]) == 1)
        Client(running).end()
        wait_until(lambda: Holdings.of(running).sessions == 0 and len(running.status()["spare_workers"]) == 1)
        for number in range(rounds):
            if time.monotonic() > deadline:
                break
            seed = seeds[number] if number < len(seeds) else secrets.randbelow(1 << 32)
            times.append(round_of(running, seed, KILLS if kills else DEEDS))
        left = processes_of(running.process.pid)
        running.process.kill()
        running.process.wait()
        all_gone(left)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.chaos")
    parser.add_argument("rounds", type=int, nargs="?", default=50)
    parser.add_argument("seeds", type=int, nargs="*")
    parser.add_argument("--kills", action="store_true", help="only rounds in which something is killed")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no further round after this time")
    parser.add_argument("--jobs", type=int, default=1, help="the rounds are divided among them")
    given = parser.parse_args()
    begun, jobs = time.monotonic(), max(1, min(given.jobs, given.rounds))
    shares = [given.rounds * (job + 1) // jobs - given.rounds * job // jobs for job in range(jobs)]
    with ProcessPoolExecutor(jobs) as pool:
        deadline = begun + given.seconds
        started = [pool.submit(chaos, share, given.seeds, kills=given.kills, deadline=deadline) for share in shares]
        failed = [error for job in started if (error := job.exception()) is not None]
        done = [each for job in started if job.exception() is None for each in job.result()]
    for error in failed:
        print(error)
    if not done:
        sys.exit(1)
    for name in sorted({each.deed for each in done}):
        of_it = [each.recovered_s for each in done if each.deed == name]
        print(f"  {name}: {len(of_it)} times, {statistics.mean(of_it):.2f} s, at most {max(of_it):.2f} s")
    recovered, served = (
        sorted(times) for times in zip(*((each.recovered_s, each.served_s) for each in done), strict=True)
    )
    half, late = len(done) // 2, len(done) * 99 // 100
    outcome = f"{len(failed)} jobs failed" if failed else "nothing left behind"
    print(
        f"{len(done)} rounds in {time.monotonic() - begun:.0f} s, {outcome}; serves again after: "
        f"p50 {served[half]:.2f} s, p99 {served[late]:.2f} s; holds what it held after: "
        f"p50 {recovered[half]:.2f} s, p99 {recovered[late]:.2f} s"
    )
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
