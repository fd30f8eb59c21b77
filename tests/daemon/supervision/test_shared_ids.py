"""Where a tenant's workers share a user id, as on a card, two tenants never have the same (AT25)."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

import pytest
from vgpud.config_tables import LimitsConfig
from vgpud.metrics import Metrics
from vgpud.supervision.launcher_spawner import LauncherSpawner
from vgpud.supervision.supervisor import Supervisor
from vgpud.supervision.worker_process import Worker

from tests.daemon.running import PATHS
from tests.daemon.supervision.test_launcher_spawner import LAUNCHER, stopped, until

OWN_IDS = LAUNCHER.replace('"own_ids": False', '"own_ids": True')


def supervisor_of(tmp_path: Path, ids: int, launcher: str = OWN_IDS, **limits: int) -> Supervisor:
    command = [sys.executable, "-c", launcher, str(tmp_path / "count"), "good"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(PATHS)}
    spawner = LauncherSpawner(command, environment, ids=range(5000, 5000 + ids))
    return Supervisor(spawner, LimitsConfig(**limits), Metrics(), shares_ids=True)


async def ended(supervisor: Supervisor) -> None:
    spawner = supervisor._spawner
    assert isinstance(spawner, LauncherSpawner)
    await stopped(supervisor, spawner.pid)


def check(alive: dict[Worker, object], supervisor: Supervisor) -> None:
    """Two workers with clients share a user id if and only if they serve one tenant; no other worker has a waiting
    worker's id.
    """
    for worker, tenant in alive.items():
        assert worker.uid is not None
        for other, its in alive.items():
            assert (worker.uid == other.uid) == (tenant == its), (tenant, its)
    waiting = [worker.uid for worker in supervisor._spares]
    assert len({*waiting}) == len(waiting)
    assert not {*waiting} & {worker.uid for worker in alive}


@pytest.mark.parametrize("spare_workers", [0, 1, 3])
@pytest.mark.asyncio
async def test_AT25_clients_that_come_at_once(tmp_path, spare_workers):
    supervisor = supervisor_of(tmp_path, 64, spare_workers=spare_workers)
    supervisor.start()
    tenants = [number % 3 for number in range(24)]
    workers = await asyncio.gather(*(supervisor.take(tenant=tenant) for tenant in tenants))
    check(dict(zip(workers, tenants, strict=True)), supervisor)
    await ended(supervisor)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.asyncio
async def test_AT25_tenants_that_come_and_go(tmp_path, seed):
    """There are few ids, so that a released one is soon used again."""
    choices, alive = random.Random(seed), dict[Worker, object]()
    supervisor = supervisor_of(tmp_path, 12, spare_workers=1)
    supervisor.start()
    for _ in range(40):
        if len(alive) < 8 and choices.random() < 0.6:
            tenants = [choices.randrange(5) for _ in range(choices.randrange(1, 4))]
            alive |= dict(
                zip(await asyncio.gather(*(supervisor.take(tenant=t) for t in tenants)), tenants, strict=True)
            )
        elif alive:
            worker = choices.choice([*alive])
            del alive[worker]
            worker.kill()
        if choices.random() < 0.5:  # otherwise the next step begins before vgpud knows of the end
            await until(lambda: not any(worker.was_ended for worker in supervisor._workers))
        check(alive, supervisor)
    await ended(supervisor)


@pytest.mark.asyncio
async def test_AT25_clients_that_cannot_be_told_apart_share_an_id_with_nobody(tmp_path):
    supervisor = supervisor_of(tmp_path, 64, spare_workers=1)
    workers = await asyncio.gather(*(supervisor.take() for _ in range(4)))
    assert len({worker.uid for worker in workers}) == 4
    await ended(supervisor)


@pytest.mark.asyncio
async def test_without_ids_whoever_waits_serves_every_tenant(tmp_path):
    supervisor = supervisor_of(tmp_path, 64, LAUNCHER, spare_workers=1)
    supervisor.start()
    for _ in range(3):
        await until(lambda: supervisor.spare_pids)
        waiting = supervisor.spare_pids
        assert [(await supervisor.take(tenant="one")).pid] == waiting
    await ended(supervisor)


@pytest.mark.asyncio
async def test_a_worker_that_comes_too_late_waits_for_anybody(tmp_path):
    supervisor = supervisor_of(tmp_path, 64, spare_workers=1)
    taking = asyncio.ensure_future(supervisor.take(tenant="one"))
    await asyncio.sleep(0)
    taking.cancel()
    await until(lambda: len(supervisor.spare_pids) == 1 and not supervisor._starting)
    waiting = supervisor.spare_pids
    assert [(await supervisor.take(tenant="two")).pid] == waiting
    await ended(supervisor)
