"""A launcher that dies at the worst moments: no client gets a worker whose process vgpud does not know, and the next
launcher forks the missing workers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from vgpud.config_tables import LimitsConfig
from vgpud.metrics import Metrics
from vgpud.supervision.launcher_spawner import LauncherSpawner
from vgpud.supervision.supervisor import Supervisor

from tests.daemon.running import PATHS, wait_until
from tests.patience import PATIENCE_S

# A fake launcher. Its second argument is a list of deeds, one for each start; after the last one it works correctly.
# "silent": the launcher forks a worker, and does not report the process.
LAUNCHER = """
import os, select, signal, socket, sys
from vgpud.proto.packing import pack_map, unpack_map

count, deeds, control = sys.argv[1], sys.argv[2].split(","), socket.socket(fileno=int(sys.argv[4]))
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


async def stopped(supervisor: Supervisor, *launchers: int) -> None:
    """Stop the supervisor, and wait until the launchers have been reaped."""
    await supervisor.stop()
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in launchers))


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
    await until(lambda: not worker._is_new)  # the worker's "ready" has been read
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
    await until(lambda: supervisor.worker_count == 1)
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
    pidfd = os.pidfd_open(dead)
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT))  # the event loop does not run here
    os.close(pidfd)
    assert [(await supervisor.take()).pid] == kept
    await until(lambda: supervisor.spare_pids)
    assert spawner.pid not in (0, dead)
    assert supervisor._failures_in_row == 0
    await stopped(supervisor, dead, spawner.pid)
