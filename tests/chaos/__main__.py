"""Clients, workers and launchers that are killed or stopped, and clients that stop in the middle of a message.

`python -m tests.chaos ROUNDS [--kills] [--jobs N]` (`make chaos`): after each round vgpud serves a client, and holds
the same resources as before. Each job runs its own vgpud. A failure names its round's seed; `python -m tests.chaos 1
SEED` repeats that round (with --kills, if that was given).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import secrets
import signal
import statistics
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from tests.chaos.audit import Holdings, all_gone, descendants, settled
from tests.daemon.hostile_session import HostileSession
from tests.daemon.running import Running, children, start_client, wait_until
from tests.fuzz.executor import hostile_host


def worker_of(running: Running, client: subprocess.Popen[bytes]) -> int:
    [worker] = [each["worker_pid"] for each in running.status()["sessions"] if each["pid"] == client.pid]
    return int(worker)


def end(client: subprocess.Popen[bytes]) -> None:
    client.kill()
    client.communicate()


def kill_the_client(running: Running, _: random.Random) -> None:
    end(start_client(running))


def kill_the_worker(running: Running, _: random.Random) -> None:
    client = start_client(running)
    os.kill(worker_of(running, client), signal.SIGKILL)
    end(client)


def stop_the_worker(running: Running, _: random.Random) -> None:
    client = start_client(running)
    worker = worker_of(running, client)
    os.kill(worker, signal.SIGSTOP)
    running.wait_log(rf"worker ended session=\d+ worker={worker}\b")
    end(client)


def stop_the_client(running: Running, _: random.Random) -> None:
    client = start_client(running)
    os.kill(client.pid, signal.SIGSTOP)
    end(client)


def kill_the_launcher(running: Running, _: random.Random) -> None:
    client = start_client(running)
    for launcher in children(running.process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(launcher, signal.SIGKILL)
    end(client)
    end(start_client(running))


def kill_the_spares(running: Running, _: random.Random) -> None:
    for spare in running.status()["spare_workers"]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(spare, signal.SIGKILL)
    end(start_client(running))  # the client may get a spare that is still dying; vgpud then assigns another one


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
    clients = [start_client(running) for _ in range(rng.randrange(2, 6))]
    for client in rng.sample(clients, len(clients)):
        os.kill(client.pid, rng.choice([signal.SIGKILL, signal.SIGTERM]))
    for client in clients:
        client.communicate()


DEEDS: list[Callable[[Running, random.Random], None]] = [
    *(kill_the_client, kill_the_worker, stop_the_worker, stop_the_client, kill_the_launcher, kill_the_spares),
    *(half_a_frame, silence, half_a_record, records_at_random, a_kernel_without_end, many_at_once),
]


KILLS = [kill_the_client, kill_the_worker, kill_the_launcher, kill_the_spares]  # each sends SIGKILL at least once


def round_of(running: Running, seed: int, deeds: list[Callable[[Running, random.Random], None]]) -> tuple[float, str]:
    """Do one random deed; return vgpud's recovery time in seconds and the deed's name. Raises AssertionError."""
    rng = random.Random(seed)
    before = Holdings.of(running)
    deed = rng.choice(deeds)
    try:
        deed(running, rng)
        recovered_s = settled(running, before)
        with running.client(timeout_s=60) as client:
            client.hello()
            client.attach()
        settled(running, before)
    except BaseException as error:
        raise AssertionError(f"seed {seed}, {deed.__name__}: {error}") from error
    return recovered_s, deed.__name__


def chaos(rounds: int, seeds: list[int], *, kills: bool = False) -> list[tuple[float, str]]:
    """Return for each round vgpud's recovery time in seconds and the deed's name. Raises AssertionError."""
    times = []
    with hostile_host() as running:
        wait_until(lambda: len(running.status()["spare_workers"]) == 1)
        end(start_client(running))
        wait_until(lambda: Holdings.of(running).sessions == 0 and len(running.status()["spare_workers"]) == 1)
        for number in range(rounds):
            seed = seeds[number] if number < len(seeds) else secrets.randbelow(1 << 32)
            times.append(round_of(running, seed, KILLS if kills else DEEDS))
        left = [running.process.pid, *descendants(running.process.pid)]
        running.process.kill()
        running.process.wait()
        all_gone(left)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.chaos")
    parser.add_argument("rounds", type=int, nargs="?", default=50)
    parser.add_argument("seeds", type=int, nargs="*")
    parser.add_argument("--kills", action="store_true", help="only rounds in which something is killed")
    parser.add_argument("--jobs", type=int, default=1, help="the rounds are divided among them")
    given = parser.parse_args()
    begun, jobs = time.monotonic(), max(1, min(given.jobs, given.rounds))
    shares = [given.rounds * (job + 1) // jobs - given.rounds * job // jobs for job in range(jobs)]
    with ProcessPoolExecutor(jobs) as pool:
        started = [pool.submit(chaos, share, given.seeds, kills=given.kills) for share in shares]
        times = sorted(each for job in started for each in job.result())
    rounds = len(times)
    median, late = times[len(times) // 2], times[len(times) * 99 // 100]
    for name in sorted({name for _, name in times}):
        of_it = [seconds for seconds, each in times if each == name]
        print(f"  {name}: {len(of_it)} times, {statistics.median(of_it):.2f} s, at most {of_it[-1]:.2f} s")
    print(
        f"{rounds} rounds in {time.monotonic() - begun:.0f} s, nothing left behind; recovery: "
        f"p50 {median[0]:.2f} s, p99 {late[0]:.2f} s"
    )


if __name__ == "__main__":
    main()
