"""A launcher that dies at the worst moments: no client gets a worker whose process vgpud does not know, and the next
launcher forks the missing workers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from vgpud.config_tables import LimitsConfig
from vgpud.metrics import Metrics
from vgpud.serving.succession import Incoming, Outgoing
from vgpud.supervision.launcher_spawner import LauncherSpawner
from vgpud.supervision.supervisor import Supervisor

from tests.daemon.running import PATHS, wait_until
from tests.patience import PATIENCE_S

# A fake loader and its launchers. The second argument is a list of deeds, one for each launcher; later ones work
# correctly.
# "silent": the launcher forks a worker, and does not report the process.
LAUNCHER = """
import os, select, signal, socket, sys
from vgpud.proto.packing import pack_map, unpack_map

count, deeds, loader = sys.argv[1], sys.argv[2].split(","), socket.socket(fileno=int(sys.argv[4]))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
loader.send(pack_map({"type": "loaded"}))
while True:
    packet, fds, _, _ = socket.recv_fds(loader, 65536, 1)
    if not packet:
        sys.exit()
    if os.fork() == 0:
        break
    os.close(fds[0])
loader.close()
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
control = socket.socket(fileno=fds[0])
socket.send_fds(control, [pack_map({"type": "launched"})], [os.pidfd_open(os.getpid())])
with open(count, "a+") as file:
    file.write("x")
    file.flush()
    number = os.path.getsize(count)
deed = deeds[number - 1] if number <= len(deeds) else "good"
control.send(pack_map({"type": "hello", "missing": [], "own_ids": False}))
workers = {}
while True:
    ready, _, _ = select.select([control, *workers], [], [])
    for pidfd in ready:
        if pidfd is not control:
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
            control.send(pack_map({"type": "exited", "id": workers.pop(pidfd), "code": 0}))
            os.close(pidfd)
    if control not in ready:
        continue
    packet, fds, _, _ = socket.recv_fds(control, 65536, 2)
    if not packet:
        sys.exit()
    worker = socket.socket(fileno=fds[0])
    child = os.fork()
    if child == 0:
        control.close()
        worker.send(pack_map({"type": "ready"}))
        worker.recv(1)  # until vgpud closes its end
        os._exit(0)
    if deed == "silent":
        signal.pause()
    number, pidfd = unpack_map(packet)["id"], os.pidfd_open(child)
    workers[pidfd] = number
    socket.send_fds(control, [pack_map({"type": "started", "id": number})], [pidfd])
    worker.close()
    os.close(fds[1])
"""


def supervisor_of(tmp_path: Path, deeds: str, **limits: object) -> tuple[Supervisor, LauncherSpawner]:
    command = [sys.executable, "-c", LAUNCHER, str(tmp_path / "count"), deeds]
    spawner = LauncherSpawner(command, os.environ | {"PYTHONPATH": os.pathsep.join(PATHS)})
    return Supervisor(spawner, LimitsConfig(**limits), Metrics()), spawner


def loader_of(spawner: LauncherSpawner) -> int:
    assert spawner._loader is not None
    return spawner._loader._process.pid


async def stopped(supervisor: Supervisor, *launchers: int) -> None:
    """Stop the supervisor, and wait until its loader and the launchers have been reaped."""
    assert isinstance(supervisor._spawner, LauncherSpawner)
    processes = [loader_of(supervisor._spawner), *launchers]
    await supervisor.stop()
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes))


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.asyncio
async def test_a_client_gets_no_worker_that_its_launcher_has_not_reported(tmp_path):
    supervisor, spawner = supervisor_of(tmp_path, "silent", spare_workers=0)
    taking = asyncio.create_task(supervisor.take())
    await until(lambda: supervisor.worker_count == 1)
    [worker] = supervisor._workers
    await until(lambda: not worker._is_new and spawner.pid)  # the worker's "ready" has been read
    assert not taking.done()
    dead = spawner.pid
    os.kill(dead, signal.SIGKILL)
    served = await taking
    assert served is not worker
    assert served.pid > 0
    await stopped(supervisor, dead, spawner.pid)


@pytest.mark.asyncio
async def test_the_next_launcher_is_ordered_while_the_dead_one_is_put_away(tmp_path):
    """The dead launcher's unreported workers end at once, which orders their replacements."""
    supervisor, spawner = supervisor_of(tmp_path, "silent", spare_workers=1)
    supervisor.start()
    await until(lambda: supervisor.worker_count == 1 and spawner.pid)
    dead = spawner.pid
    [first] = supervisor._workers
    await until(lambda: not first._is_new)
    waiting = [asyncio.create_task(supervisor.take()) for _ in range(3)]  # unread orders: the launcher is paused
    await until(lambda: supervisor.worker_count == 4)
    os.kill(dead, signal.SIGKILL)
    served = await asyncio.gather(*waiting)
    assert len({worker.pid for worker in served} - {0}) == 3
    assert spawner.pid not in (0, dead)
    await stopped(supervisor, dead, spawner.pid)


@pytest.mark.asyncio
async def test_an_order_to_a_launcher_whose_death_is_not_noticed_yet_goes_to_the_next(tmp_path):
    supervisor, spawner = supervisor_of(tmp_path, "good", spare_workers=1)
    supervisor.start()
    await until(lambda: supervisor.spare_pids)
    dead, kept = spawner.pid, supervisor.spare_pids
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{dead}").exists())  # the event loop does not run here
    assert [(await supervisor.take()).pid] == kept
    await until(lambda: supervisor.spare_pids)
    assert spawner.pid not in (0, dead)
    assert supervisor._failures_in_row == 0
    await stopped(supervisor, dead, spawner.pid)


@pytest.mark.asyncio
async def test_a_loader_that_dies_is_replaced_and_the_launcher_goes_on(tmp_path):
    supervisor, spawner = supervisor_of(tmp_path, "good", spare_workers=1)
    supervisor.start()
    await until(lambda: supervisor.spare_pids)
    launcher, dead = spawner.pid, loader_of(spawner)
    os.kill(dead, signal.SIGKILL)
    await until(lambda: spawner._loader is None or loader_of(spawner) != dead)
    await until(lambda: spawner._loader is not None and spawner._loader.has_loaded)
    assert await supervisor.take()
    await until(lambda: supervisor.spare_pids)
    assert spawner.pid == launcher
    os.kill(launcher, signal.SIGKILL)  # its successor comes from the new loader
    assert await supervisor.take()
    await until(lambda: supervisor.spare_pids)
    assert spawner.pid not in (0, launcher)
    assert (tmp_path / "count").read_text() == "xx"
    await stopped(supervisor, dead, launcher, spawner.pid)


@pytest.mark.asyncio
async def test_a_loader_whose_death_is_not_noticed_yet_launches_nothing(tmp_path):
    supervisor, spawner = supervisor_of(tmp_path, "good", spare_workers=1)
    supervisor.start()
    await until(lambda: supervisor.spare_pids)
    dead = [loader_of(spawner), spawner.pid]
    for pid in dead:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: os.waitid(os.P_PID, dead[0], os.WEXITED | os.WNOWAIT))  # the event loop does not run here
    supervisor._spares.clear()
    assert await supervisor.take()
    assert loader_of(spawner) != dead[0]
    assert supervisor._failures_in_row == 0
    await stopped(supervisor, *dead, spawner.pid)


@pytest.mark.asyncio
async def test_a_loader_that_hangs_is_replaced_when_a_launcher_is_needed(tmp_path):
    supervisor, spawner = supervisor_of(tmp_path, "good", spare_workers=1)
    supervisor.start()
    await until(lambda: supervisor.spare_pids)
    hung, dead = loader_of(spawner), spawner.pid
    os.kill(hung, signal.SIGSTOP)
    os.kill(dead, signal.SIGKILL)
    await until(lambda: spawner.pid == 0)
    assert await supervisor.take()  # the spare; the next one is ordered from a launcher that is not forked
    await until(lambda: supervisor._starting)
    for worker in list(supervisor._starting):
        worker.kill()  # as when its start has taken too long
    await until(lambda: supervisor.spare_pids and spawner.pid)
    assert loader_of(spawner) != hung
    await stopped(supervisor, hung, dead, spawner.pid)


@pytest.mark.asyncio
async def test_what_has_the_number_of_a_launcher_that_has_ended_is_not_killed(tmp_path):
    """Launchers are no children of vgpud: their numbers may be another process's by the time of the next vgpud."""
    supervisor, spawner = supervisor_of(tmp_path, "good", spare_workers=1)
    supervisor.start()
    await until(lambda: supervisor.spare_pids and loader_of(spawner))
    outgoing = Outgoing()
    dumped = spawner.dump(outgoing)
    assert len(dumped) == 2  # the launcher and the loader
    incoming = Incoming([os.dup(fd) for fd in outgoing._fds], {})
    launcher, loader = spawner.pid, loader_of(spawner)
    with subprocess.Popen(["sleep", "inf"]) as other:
        try:
            await stopped(supervisor, launcher, loader)
            following = LauncherSpawner([], {})
            following.adopt([fields | {"pid": other.pid} for fields in dumped], incoming)
            await until(lambda: not following._retired)
            assert other.poll() is None
        finally:
            other.kill()
