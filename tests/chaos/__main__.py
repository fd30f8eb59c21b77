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
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from tests.chaos.audit import Holdings, all_gone, launchers_of, processes_of, settled
from tests.daemon.hostile_session import HostileSession
from tests.daemon.running import Running, wait_until
from tests.fuzz.executor import hostile_host


class Client:
    """An attached client in a process of its own: a fork of this one, as a program's start would take most of the time
    of a round. It is killed at the end of its block, if not before.
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
        self._is_ended = False
        if not os.read(self._attached, 1):
            self.end()
            raise AssertionError("the client was not served")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Kill and reap it."""
        if not self._is_ended:
            self._is_ended = True
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self._attached)


def worker_of(running: Running, client: Client) -> int:
    [worker] = [each["worker_pid"] for each in running.status()["sessions"] if each["pid"] == client.pid]
    return int(worker)


# A deed prepares, yields, and causes a failure; then it ends, or yields once more and tidies up. The first yield is
# when the clock begins.
Deed = Callable[[Running, random.Random], Iterator[None]]


def kill(pids: list[int]) -> None:
    """The caller calls all_gone() before it audits: a process that is still dying would count as one that is there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_the_client(running: Running, _: random.Random) -> Iterator[None]:
    with Client(running) as client:
        yield
        client.end()


def kill_the_worker(running: Running, _: random.Random) -> Iterator[None]:
    with Client(running) as client:
        worker = worker_of(running, client)
        yield
        kill([worker])
        yield
    all_gone([worker])


def stop_the_worker(running: Running, _: random.Random) -> Iterator[None]:
    with Client(running) as client:
        worker = worker_of(running, client)
        yield
        os.kill(worker, signal.SIGSTOP)
        yield
        running.wait_log(rf"worker ended session=\d+ worker={worker}\b")


def stop_the_client(running: Running, _: random.Random) -> Iterator[None]:
    with Client(running) as client:
        yield
        os.kill(client.pid, signal.SIGSTOP)


def kill_by_name(running: Running, *names: str) -> Iterator[None]:
    with Client(running):
        found = launchers_of(running.process.pid)
        pids = [pid for name in names for pid in found[name]]
        yield
        kill(pids)
    yield
    all_gone(pids)


def kill_the_launcher(running: Running, _: random.Random) -> Iterator[None]:
    return kill_by_name(running, "vgpu-launcher")


def kill_the_loader(running: Running, _: random.Random) -> Iterator[None]:
    return kill_by_name(running, "vgpu-loader")


def kill_launcher_and_loader(running: Running, _: random.Random) -> Iterator[None]:
    return kill_by_name(running, "vgpu-loader", "vgpu-launcher")


def kill_the_spares(running: Running, _: random.Random) -> Iterator[None]:
    """The next client may get a spare that is still dying; vgpud then assigns another one."""
    spares = running.status()["spare_workers"]
    yield
    kill(spares)
    yield
    all_gone(spares)


def half_a_frame(running: Running, rng: random.Random) -> Iterator[None]:
    with running.raw() as sock:
        yield
        sock.sendall(rng.randbytes(rng.randrange(1, 64)))


def silence(running: Running, _: random.Random) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _number in range(20):
            stack.enter_context(running.raw())
        yield


def half_a_record(running: Running, rng: random.Random) -> Iterator[None]:
    with HostileSession(running) as session:
        record = session.record("cuMemsetD8Async", dstDevice=session.memory, N=64, hStream=1)
        yield
        session.sock.sendall(record[: rng.randrange(1, len(record))])


def records_at_random(running: Running, rng: random.Random) -> Iterator[None]:
    with HostileSession(running) as session, contextlib.suppress(OSError):
        yield
        session.sock.sendall(rng.randbytes(4096))


def a_kernel_without_end(running: Running, _: random.Random) -> Iterator[None]:
    with HostileSession(running) as session:
        yield
        session.launch("endless")


def many_at_once(running: Running, rng: random.Random) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(running)) for _ in range(rng.randrange(2, 6))]
        yield
        for client in rng.sample(clients, len(clients)):
            os.kill(client.pid, rng.choice([signal.SIGKILL, signal.SIGTERM]))


DEEDS: list[Deed] = [
    *(kill_the_client, kill_the_worker, stop_the_worker, stop_the_client, kill_the_spares),
    *(kill_the_launcher, kill_the_loader, kill_launcher_and_loader),
    *(half_a_frame, silence, half_a_record, records_at_random, a_kernel_without_end, many_at_once),
]


KILLS = [deed for deed in DEEDS if deed.__name__.startswith("kill_")]  # each sends SIGKILL at least once


@dataclass(frozen=True)
class Round:
    """What was done, and how long it took from the failure on, in seconds."""

    deed: str
    served_s: float  # until the next client is served
    recovered_s: float  # until vgpud holds what it held before, a spare worker among it


def round_of(running: Running, seed: int, deeds: list[Deed]) -> Round:
    """Do one random deed. Raises AssertionError."""
    rng = random.Random(seed)
    before = Holdings.of(running)
    deed = rng.choice(deeds)
    try:
        with contextlib.closing(deed(running, rng)) as failing:
            next(failing)
            begun = time.monotonic()
            next(failing, None)
            with Client(running):
                served_s = time.monotonic() - begun
            for _ in failing:
                pass
        settled(running, before)
        recovered_s = time.monotonic() - begun
        with Client(running):
            pass
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
