"""Workers and clients that die, hang or never start: each is noticed in time, and nobody else is disturbed."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from vgpud.cli.client import RefusedError
from vgpud.config_tables import LimitsConfig
from vgpud.cudaerror import CudaError
from vgpud.metrics import Metrics
from vgpud.supervision.supervisor import Supervisor

from tests.daemon.running import children, only, process_exists, start_client, wait_until
from tests.patience import PATIENCE_S


def worker_of(running) -> int:
    session = only(lambda: running.status()["sessions"])
    return session["worker_pid"]


def test_a_killed_worker_ends_its_client_only(start):
    running = start()
    with running.client() as first, running.client() as second:
        first.hello()
        first.attach()
        victim = worker_of(running)
        second.hello()
        second.attach()
        os.kill(victim, signal.SIGKILL)
        assert first.detach().recv(1) == b""
        second.detach().sendall(b"still here")
        assert second.detach().recv(100) == b"still here"
        running.wait_log(rf"worker ended session=1 worker={victim} how=\"signal SIGKILL\"")
        wait_until(lambda: len(running.status()["sessions"]) == 1)


def test_a_killed_client_frees_its_worker(start):
    running = start()
    client = start_client(running)
    worker = worker_of(running)
    client.kill()
    wait_until(lambda: not process_exists(worker))
    client.communicate()
    wait_until(lambda: running.status()["sessions"] == [])


def test_a_worker_that_ignores_its_clients_death_is_killed(start):
    running = start("deaf", "limits.worker_exit_timeout_s = 0.5\n")
    client = start_client(running)
    worker = worker_of(running)
    client.kill()
    client.communicate()
    wait_until(lambda: not process_exists(worker))
    running.wait_log("worker killed .*its client is gone")
    assert running.status()["metrics"]["workers_killed"] == 1


def test_there_is_always_a_spare(start):
    running = start(extra="limits.spare_workers = 2\n")
    wait_until(lambda: len(running.status()["spare_workers"]) == 2)
    spares = running.status()["spare_workers"]
    with running.client() as client:
        client.hello()
        client.attach()
        assert worker_of(running) in spares
        wait_until(lambda: len(running.status()["spare_workers"]) == 2)
    os.kill(running.status()["spare_workers"][0], signal.SIGKILL)
    wait_until(lambda: running.status()["metrics"]["workers_failed"] == 1)
    wait_until(lambda: len(running.status()["spare_workers"]) == 2)


def test_a_client_is_served_though_the_spare_has_just_died(start):
    """vgpud notices the death only when it hands the session over. `make chaos` found that the client was refused."""
    running = start(extra="limits.spare_workers = 1\n")
    for _ in range(20):
        [spare] = wait_until(lambda: running.status()["spare_workers"])
        with running.client(timeout_s=60) as client:
            client.hello()
            os.kill(spare, signal.SIGKILL)
            wait_until(lambda pid=spare: not process_exists(pid))
            client.attach()


def test_what_waits_knows_the_bound_of_the_drivers_cache(start):
    """The bound is in a waiting worker's environment, since NVIDIA's driver reads it at its start."""
    running = start(extra="limits.kernel_cache_nbytes = 123456\n")

    def told() -> str:
        with contextlib.suppress(OSError, ValueError):  # there is no spare worker at the moment
            [spare] = running.status()["spare_workers"]
            return Path(f"/proc/{spare}/environ").read_text()
        return ""

    wait_until(lambda: "\0CUDA_CACHE_MAXSIZE=123456\0" in told())
    running.config.write_text(running.config.read_text().replace("123456", "0"))
    running.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "\0CUDA_CACHE_DISABLE=1\0" in told())


class NoSpawner:
    """A spawner that starts no worker, so that only the test changes the queue."""

    missing = ()

    def spawn(self, *_arguments, **_options):
        raise OSError("nothing is started here")

    def close(self):
        pass


class ServesOthers(Supervisor):
    """A supervisor that has given somebody else a worker whenever it is asked."""

    _served_at = property(lambda self: asyncio.get_running_loop().time(), lambda self, time_s: None)


@pytest.mark.control("AT13")
@pytest.mark.asyncio
async def test_AT13_a_queue_may_last_longer_than_one_worker_may():
    """The limit counts from when a client last got a worker."""
    limits = LimitsConfig(worker_start_timeout_s=0.1)
    loop = asyncio.get_running_loop()
    mine: asyncio.Future[object] = loop.create_future()
    loop.call_later(0.5, mine.set_result, "worker")
    assert await ServesOthers(NoSpawner(), limits, Metrics())._wait_turn(mine) == "worker"
    with pytest.raises(TimeoutError):
        await Supervisor(NoSpawner(), limits, Metrics())._wait_turn(loop.create_future())


def test_without_spares_a_worker_is_started_on_demand(start):
    running = start(extra="limits.spare_workers = 0\n")
    assert running.status()["workers"] == 0
    for _ in range(4):  # one after the other: vgpud closes a connection that sends no hello for five seconds
        with running.client() as client:
            client.hello()
            client.attach()
    wait_until(lambda: running.status()["workers"] == 0)


def test_workers_that_do_not_start_are_reported_and_not_retried_in_a_loop(start):
    begin = time.monotonic()
    running = start("broken")
    time.sleep(1.5)
    with running.client() as client:
        client.hello()  # discovery needs no worker
        with pytest.raises(RefusedError) as refused:
            client.attach()
    assert refused.value.code == CudaError.OPERATING_SYSTEM
    assert "broken on purpose" in refused.value.reason
    started = running.status()["metrics"]["workers_started"]
    assert started <= 3 + math.log2(1 + (time.monotonic() - begin) / 0.25)  # each delay is twice the one before


@pytest.mark.parametrize("spare_workers", [0, 1])
def test_a_mended_installation_is_noticed(start, tmp_path, spare_workers):
    (tmp_path / "broken").touch()
    running = start(f"broken-while:{tmp_path}/broken", f"limits.spare_workers = {spare_workers}\n")
    with running.client() as client:
        client.hello()
        with pytest.raises(RefusedError, match="broken on purpose"):
            client.attach()
    (tmp_path / "broken").unlink()

    def serves() -> bool:
        with running.client() as client:
            client.hello()
            try:
                client.attach()
            except RefusedError:
                return False
            return True

    wait_until(serves)


def test_a_worker_that_hangs_before_it_is_ready_is_killed(start):
    running = start("hung", "limits.worker_start_timeout_s = 0.4\n")
    with running.client() as client:
        client.hello()
        with pytest.raises(RefusedError, match=r"no worker was ready in time|workers do not start"):
            client.attach()
    running.wait_log("worker killed .*it was not ready in time")


def test_a_missing_worker_program_is_reported(start, tmp_path):
    running = start()
    running.end()
    config = running.config.read_text().replace(sys.executable, str(tmp_path / "absent"))
    running.config.write_text(config)
    running = type(running).start(running.config, tmp_path, "log-2")
    try:
        running.wait_ready()
        running.wait_log("a worker did not start why=.*absent")
        with running.client() as client:
            client.hello()
            with pytest.raises(RefusedError, match="workers do not start"):
                client.attach()
    finally:
        running.end()


def test_a_worker_that_never_attaches_is_killed(start):
    running = start("mute", "limits.worker_start_timeout_s = 200\n")
    wait_until(lambda: running.status()["spare_workers"])
    running.config.write_text(running.config.read_text().replace("200", "0.5"))
    running.process.send_signal(signal.SIGHUP)
    running.wait_log("reloaded")
    with running.client() as client:
        client.hello()
        with pytest.raises(ConnectionError):
            client.attach()
    running.wait_log("worker killed .*was not attached in time")


@pytest.mark.parametrize("count", [1, 2])
def test_a_client_whose_worker_dies_before_it_answers_gets_another_one(start, tmp_path, count):
    running = start(f"short-lived:{count}:{tmp_path}/count")
    with running.client() as client:
        client.hello()
        attached = client.attach()
        client.detach().sendall(b"hello")
        assert client.detach().recv(5) == b"hello"
        session = only(lambda: running.status()["sessions"])
        assert session["session"] == attached.worker
        assert running.log.count("ended before it met its client") == count
        os.kill(session["worker_pid"], 0)
    wait_until(lambda: running.status()["sessions"] == [])


def test_a_client_whose_workers_all_die_is_told(start, tmp_path):
    running = start(f"short-lived:99:{tmp_path}/count")
    with running.client() as client:
        client.hello()
        with pytest.raises(ConnectionError):
            client.attach()
    assert running.log.count("ended before it met its client") == 2
    wait_until(lambda: running.status()["sessions"] == [])


def test_what_a_worker_writes_is_bounded_and_escaped(start):
    running = start("noisy")
    with running.client() as client:
        client.hello()
        client.attach()
    running.wait_log("worker ended")
    assert running.log.count("worker says") < 40
    assert "\x1b" not in running.log
    assert r'line="one\u001b[31m\rforged"' in running.log


def test_GP7_sigterm_lets_sessions_finish_and_refuses_new_ones(start):
    running = start(extra="limits.drain_timeout_s = 300\n")
    with running.client() as client, running.client() as idle:
        client.hello()
        client.attach()
        idle.hello()
        wait_until(lambda: running.status()["spare_workers"])
        workers = children(running.process.pid)
        assert len(workers) == 2
        running.process.terminate()
        running.wait_log("draining.* sessions=1 timeout_s=300")
        with running.client() as late, pytest.raises(RefusedError, match="vgpud is stopping") as refused:
            late.hello()
        assert refused.value.code == CudaError.SYSTEM_NOT_READY
        assert 200 < running.status()["drain_left_s"] <= 300
        idle.ping()
        with pytest.raises(RefusedError, match="vgpud is stopping"):
            idle.attach()
        client.detach().sendall(b"still here")
        assert client.detach().recv(100) == b"still here"
    assert running.process.wait(PATIENCE_S) == 0
    assert not any(process_exists(pid) for pid in workers)
    assert sorted(path.name for path in running.admin_path.parent.glob("*.sock")) == []


@pytest.mark.parametrize("ends_it", ["the deadline", "a second signal"])
def test_GP7_sessions_are_ended_by(start, ends_it):
    running = start(extra=f"limits.drain_timeout_s = {0.2 if ends_it == 'the deadline' else 300}\n")
    with running.client() as client:
        client.hello()
        client.attach()
        running.process.terminate()
        running.wait_log("draining")
        if ends_it == "a second signal":
            running.process.terminate()
        assert client.detach().recv(1) == b""
        assert running.process.wait(PATIENCE_S) == 0
    assert re.search("stopping sessions_ended=1", running.log)


def test_workers_that_ignore_sigterm_are_killed(start):
    running = start("deaf", "limits.drain_timeout_s = 0\nlimits.worker_exit_timeout_s = 0.5\n")
    with running.client() as client:
        client.hello()
        client.attach()
        worker = worker_of(running)
        begin = time.monotonic()
        running.process.terminate()
        assert running.process.wait(PATIENCE_S) == 0
        assert time.monotonic() - begin > 0.4
    assert not process_exists(worker)


def test_workers_end_with_a_vgpud_that_is_killed(start):
    running = start()
    with running.client() as client:
        client.hello()
        client.attach()
        wait_until(lambda: running.status()["spare_workers"])
        workers = children(running.process.pid)
        assert len(workers) == 2
        running.process.kill()
        running.process.wait()
        assert client.detach().recv(1) == b""
        wait_until(lambda: not any(process_exists(pid) for pid in workers))
