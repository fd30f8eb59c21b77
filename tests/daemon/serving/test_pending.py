"""Connections that have not sent hello: which may wait, and which are closed for a new one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from vgpud.config_tables import LimitsConfig
from vgpud.serving.pending import PendingConnections

LIMITS = LimitsConfig(pending_connections=16, pending_per_client=6)


@pytest_asyncio.fixture
async def tasks() -> AsyncIterator[list[asyncio.Task[None]]]:
    """Connections that never send anything; a test adds to them."""
    waiting: list[asyncio.Task[None]] = []
    yield waiting
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def connect(pending: PendingConnections, key: str, tasks: list[asyncio.Task[None]]) -> bool:
    if not pending.make_room(key, LIMITS):
        return False
    tasks.append(asyncio.create_task(asyncio.sleep(3600)))
    pending.add(key, tasks[-1])
    return True


@pytest.mark.asyncio
async def test_AT11_silent_connections_of_five_clients_keep_nobody_out(tasks):
    pending = PendingConnections()
    for _ in range(6):
        for attacker in "abcde":
            connect(pending, attacker, tasks)
    assert pending.count == 16
    bystander = len(tasks)
    assert connect(pending, "bystander", tasks)
    for attacker in "abcde" * 4:
        connect(pending, attacker, tasks)
    await asyncio.sleep(0)
    assert not tasks[bystander].cancelling()
    assert pending.count == 16


@pytest.mark.control("AT11")
@pytest.mark.asyncio
async def test_AT11_control_first_come_first_served_keeps_the_bystander_out(tasks, monkeypatch):
    monkeypatch.setattr(
        PendingConnections, "make_room", lambda self, _key, limits: self.count < limits.pending_connections
    )
    pending = PendingConnections()
    for _ in range(6):
        for attacker in "abcde":
            connect(pending, attacker, tasks)
    assert not connect(pending, "bystander", tasks)


@pytest.mark.asyncio
async def test_the_oldest_connection_of_the_client_with_most_makes_room(tasks):
    pending = PendingConnections()
    for key in ("few", *["many"] * 6, *["some"] * 5, *["more"] * 4):
        assert connect(pending, key, tasks)
    assert connect(pending, "new", tasks)
    await asyncio.sleep(0)
    assert [task.cancelled() for task in tasks].index(True) == 1
    assert sum(task.cancelled() for task in tasks) == 1


@pytest.mark.asyncio
async def test_one_client_is_capped(tasks):
    pending = PendingConnections()
    assert [connect(pending, "one", tasks) for _ in range(7)] == [True] * 6 + [False]
    pending.remove("one", tasks[0])
    pending.remove("one", tasks[0])
    assert pending.count == 5
