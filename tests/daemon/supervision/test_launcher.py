"""The launcher forks workers quickly, and each in namespaces of its own (daemon/vgpud/worker/cell.py)."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from vgpud.cli.client import RefusedError

from tests.daemon.running import (
    Running,
    children,
    launchers,
    process_exists,
    start_client,
    vgpud_with_real_workers,
    wait_until,
)
from tests.patience import PATIENCE_S


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path)


def worker_of(running: Running, client_pid: int) -> int:
    [worker] = [s["worker_pid"] for s in running.status()["sessions"] if s["pid"] == client_pid]
    assert worker
    return worker


def namespace(pid: int, kind: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{kind}")


def has(running: Running, name: str) -> bool:
    """Whether vgpud's workers have that kind of isolation here; the status lists the kinds that are missing."""
    return not any(missing.startswith(name) for missing in running.status()["isolation_missing"])


def test_AT2_AT5_AT22_a_worker_is_the_first_process_of_a_pid_namespace_of_its_own(running):
    client, other = start_client(running), start_client(running)
    worker, neighbour = worker_of(running, client.pid), worker_of(running, other.pid)
    if not has(running, "pid namespace"):
        assert running.wait_log("isolated less than they could be")
        pytest.skip("this kernel gives no pid namespaces")
    status = Path(f"/proc/{worker}/status").read_text()
    assert [line.split()[-1] for line in status.splitlines() if line.startswith("NSpid")] == ["1"]
    spaces = {namespace(pid, "pid") for pid in (worker, neighbour, running.process.pid)}
    assert len(spaces) == 3
    if has(running, "mount namespace"):
        seen = {name for name in os.listdir(f"/proc/{worker}/root/proc") if name.isdigit()}
        assert seen == {"1"}
    for process in (client, other):
        process.kill()
        process.communicate()


def test_AT3_a_worker_has_no_capabilities(running):
    client = start_client(running)
    status = Path(f"/proc/{worker_of(running, client.pid)}/status").read_text()
    held = {line.split()[0]: int(line.split()[1], 16) for line in status.splitlines() if line.startswith("Cap")}
    assert held == dict.fromkeys(("CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"), 0)
    client.kill()
    client.communicate()


def test_AT4_workers_share_neither_dev_shm_nor_ipc_objects_with_the_host(running):
    client = start_client(running)
    worker = worker_of(running, client.pid)
    if has(running, "mount namespace"):
        mine = Path("/dev/shm") / f"vgpu-test-{os.getpid()}"
        mine.write_text("another VM's memory")
        try:
            assert os.listdir(f"/proc/{worker}/root/dev/shm") == []
        finally:
            mine.unlink()
    for kind in ("ipc", "net"):
        if has(running, f"{kind} namespace" if kind == "ipc" else "network namespace"):
            assert namespace(worker, kind) != namespace(running.process.pid, kind)
    client.kill()
    client.communicate()


def test_a_worker_shares_what_is_loaded_with_the_launcher(running):
    """An idle worker has little private memory: it shares the pages of everything loaded with the launcher."""
    client = start_client(running)
    rollup = Path(f"/proc/{worker_of(running, client.pid)}/smaps_rollup").read_text()
    own_kib = sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_"))
    assert own_kib < 16 * 1024
    client.kill()
    client.communicate()


def test_a_launcher_that_dies_leaves_its_workers_and_is_replaced(running):
    client = start_client(running)
    worker = worker_of(running, client.pid)
    [launcher] = launchers(running.process.pid)
    os.kill(launcher, signal.SIGKILL)
    wait_until(lambda: not process_exists(launcher))
    other = start_client(running)
    assert process_exists(worker)
    assert worker_of(running, other.pid) != worker
    for process in (client, other):
        process.kill()
        process.communicate()
    wait_until(lambda: running.status()["sessions"] == [])
    assert not process_exists(worker)


def limit_starts(running: Running, limit_s: int) -> None:
    """Change how long the start of a worker may take."""
    reloads = running.log.count("reloaded")
    running.config.write_text(re.sub(r"(worker_start_timeout_s =) \d+", rf"\1 {limit_s}", running.config.read_text()))
    running.process.send_signal(signal.SIGHUP)
    wait_until(lambda: running.log.count("reloaded") > reloads)


def test_a_launcher_that_hangs_is_ended_and_replaced(tmp_path):
    """The launcher is stopped before it forks a second worker; the session of the first worker continues."""
    with contextlib.contextmanager(vgpud_with_real_workers)(
        tmp_path, "[limits]\nspare_workers = 0\nworker_start_timeout_s = 200\ndrain_timeout_s = 0\n"
    ) as running:
        client = start_client(running)
        worker = worker_of(running, client.pid)
        [launcher] = launchers(running.process.pid)
        os.kill(launcher, signal.SIGSTOP)
        limit_starts(running, 1)
        with running.client() as refused:
            refused.hello()
            with pytest.raises(RefusedError, match=r"no worker was ready in time|workers do not start"):
                refused.attach()
        running.wait_log(f"launcher of workers hangs.*launcher={launcher}")
        limit_starts(running, 200)  # on a busy machine the next launcher takes seconds
        other = start_client(running)
        assert worker_of(running, other.pid) != worker
        assert process_exists(worker)
        # A launcher may be the first process of its workers' pid namespace, so it is killed only after they have ended.
        assert launcher in launchers(running.process.pid)
        client.kill()
        client.communicate()
        wait_until(lambda: not process_exists(worker) and not process_exists(launcher))
        other.kill()
        other.communicate()


def test_a_launcher_that_hangs_does_not_hold_up_the_end(tmp_path):
    with contextlib.contextmanager(vgpud_with_real_workers)(tmp_path, "[limits]\nspare_workers = 0\n") as running:
        client = start_client(running)
        client.kill()
        client.communicate()
        wait_until(lambda: running.status()["sessions"] == [])
        [launcher] = launchers(running.process.pid)
        os.kill(launcher, signal.SIGSTOP)
        with running.client() as waiting, ThreadPoolExecutor(1) as pool:
            waiting.hello()
            attached = pool.submit(waiting.attach)
            wait_until(lambda: running.status()["workers"] == 1)
            running.end()
            assert isinstance(attached.exception(PATIENCE_S), ConnectionError | RefusedError)
        wait_until(lambda: not process_exists(launcher))
        assert "launcher of workers hangs" not in running.log  # nobody waits for it any more


def test_AT13_clients_that_start_at_once_are_all_served_and_their_spares_go(tmp_path):
    """tests/bench/walls.py measures 300 clients. Eight workers start at a time."""
    count = 32
    with contextlib.contextmanager(vgpud_with_real_workers)(
        tmp_path, "[limits]\nspare_workers = 1\nworker_start_timeout_s = 200\n"
    ) as running:
        clients = []
        for _ in range(count):  # each connects when it is its turn: vgpud drops one that sends no hello for 5 s
            clients.append(running.client())
            clients[-1].hello()
        with ThreadPoolExecutor(count) as pool:
            attached = list(pool.map(lambda client: client.attach().worker, clients))
        assert len(set(attached)) == count
        for client in clients:
            client.close()
        wait_until(lambda: running.status()["sessions"] == [])
        wait_until(lambda: running.status()["workers"] == len(running.status()["spare_workers"]) == 1)


def test_AT14_a_worker_that_is_stopped_is_ended(running):
    client = start_client(running)
    worker = worker_of(running, client.pid)
    os.kill(worker, signal.SIGSTOP)
    running.wait_log(rf'worker killed .*worker={worker} why="it was stopped by a signal"')
    wait_until(lambda: running.status()["sessions"] == [])
    client.communicate()


def test_no_worker_outlives_vgpud(running):
    client = start_client(running)
    everything = [worker_of(running, client.pid), *children(running.process.pid), *launchers(running.process.pid)]
    running.process.kill()
    running.process.wait()
    wait_until(lambda: not [each for each in everything if process_exists(each)])
    client.communicate()


def test_require_isolation_refuses_clients_where_workers_are_not_isolated(start):
    running = start(extra="")  # the fake worker is a worker_command, which vgpud does not isolate
    text = running.config.read_text()
    assert running.wait_log("isolated less than they could be")
    running.end()
    running.config.write_text("require_isolation = true\n" + text)
    strict = Running.start(running.config, running.config.parent, "strict")
    try:
        strict.wait_ready()
        with strict.client() as client:
            client.hello()
            with pytest.raises(RefusedError, match="cannot isolate workers"):
                client.attach()
    finally:
        strict.end()
