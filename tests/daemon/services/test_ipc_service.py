"""A worker's socket for shared memory and events: requests are checked, and no tenant gets another tenant's objects."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from vgpud.config_tables import LimitsConfig
from vgpud.metrics import Metrics
from vgpud.services.ipc_service import IpcDesk, IpcService
from vgpud.tenancy.tenant import Identified, Tenant

from tests.descriptors import open_descriptors
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.asyncio

ALICE, BOB, HER_CONTAINER = Tenant("uid:1", None), Tenant("uid:2", None), Tenant("uid:1", None, 4026532000)
PUBLISH, FIND, WITHDRAW = 1, 2, 3
MEMORY, EVENT = 1, 2
SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT = 0, 1, 2, 201
QUESTION, ANSWER = struct.Struct("<IIQ64s64s"), struct.Struct("<iIQ64s")
NOTHING = bytes(64)


@dataclass
class Worker:
    """A session's worker: its end of the socket to vgpud's service."""

    desk: IpcDesk

    def __post_init__(self) -> None:
        self.sock = self.desk.theirs.dup()
        self.sock.setblocking(False)

    async def ask(self, kind: int, what: int = MEMORY, token: bytes = NOTHING, fds: tuple[int, ...] = ()) -> tuple:
        """Send a request; return (result, bytes, token or handle, descriptors)."""
        handle = b"the driver's own".ljust(64, b"\0")
        socket.send_fds(self.sock, [QUESTION.pack(kind, what, 4096, token, handle)], list(fds))
        return await self.hear()

    async def hear(self) -> tuple:
        ready = asyncio.Event()
        asyncio.get_running_loop().add_reader(self.sock, ready.set)
        await asyncio.wait_for(ready.wait(), PATIENCE_S)
        asyncio.get_running_loop().remove_reader(self.sock)
        packet, fds, _, _ = socket.recv_fds(self.sock, 4096, 4)
        if not packet:
            return ()
        result, _, nbytes, text = ANSWER.unpack(packet)
        return result, nbytes, text, fds


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest_asyncio.fixture
async def service(metrics: Metrics) -> AsyncIterator[IpcService]:
    service = IpcService(LimitsConfig(ipc_objects_per_tenant=3), metrics)
    yield service
    service.close()
    assert metrics.ipc_objects == 0


@pytest.fixture
def enter(service: IpcService):
    def enter(tenant: Tenant) -> Worker:
        worker = Worker(service.open(Identified(tenant)))
        workers.append(worker)
        return worker

    workers: list[Worker] = []
    yield enter
    for worker in workers:
        worker.sock.close()


def file(text: bytes) -> int:
    fd = os.memfd_create("shared")
    os.write(fd, text)
    return fd


async def test_the_same_tenant_gets_the_file_and_the_handle(enter):
    maker, opener = enter(ALICE), enter(ALICE)
    fd = file(b"shared")
    result, _, token, _ = await maker.ask(PUBLISH, fds=(fd,))
    os.close(fd)
    assert result == SUCCESS
    assert len(set(token)) > 16
    result, nbytes, handle, [found] = await opener.ask(FIND, token=token)
    assert (result, nbytes, handle[:16], os.pread(found, 9, 0)) == (SUCCESS, 4096, b"the driver's own", b"shared")
    os.close(found)
    assert (await maker.ask(FIND, token=token))[0] == INVALID_CONTEXT


@pytest.mark.parametrize("other", [BOB, HER_CONTAINER, Tenant("uid:1", "token"), Tenant("vm:uid:1", None)], ids=str)
async def test_others_get_nothing_and_change_nothing(enter, other):
    maker, thief, friend = enter(ALICE), enter(other), enter(ALICE)
    _, _, token, _ = await maker.ask(PUBLISH)
    nothing = (INVALID_VALUE, 0, NOTHING, [])
    assert await thief.ask(FIND, token=token) == nothing
    assert await thief.ask(FIND, token=secrets.token_bytes(64)) == nothing  # the same answer for an unknown token
    assert (await thief.ask(WITHDRAW, token=token))[0] == SUCCESS
    assert await friend.ask(FIND, what=EVENT, token=token) == nothing
    assert (await friend.ask(WITHDRAW, token=token))[0] == SUCCESS  # without effect on another session's object
    assert (await friend.ask(FIND, token=token))[0] == SUCCESS


async def test_what_is_withdrawn_or_whose_maker_is_gone_is_not_found(enter, metrics):
    maker, opener = enter(ALICE), enter(ALICE)
    tokens = [(await maker.ask(PUBLISH))[2] for _ in range(2)]
    assert (await maker.ask(WITHDRAW, token=tokens[0]))[0] == SUCCESS
    assert (await maker.ask(WITHDRAW, token=tokens[0]))[0] == SUCCESS
    assert (await opener.ask(FIND, token=tokens[0]))[0] == INVALID_VALUE
    assert (await opener.ask(FIND, token=tokens[1]))[0] == SUCCESS
    maker.desk.close()
    assert (await opener.ask(FIND, token=tokens[1]))[0] == INVALID_VALUE
    assert metrics.ipc_objects == 0


async def test_a_tenant_has_so_many_and_others_theirs(enter):
    greedy, other = enter(ALICE), enter(BOB)
    fd = file(b"")
    assert [(await greedy.ask(PUBLISH, fds=(fd,)))[0] for _ in range(5)] == [0, 0, 0, OUT_OF_MEMORY, OUT_OF_MEMORY]
    os.close(fd)
    assert (await enter(ALICE).ask(PUBLISH))[0] == OUT_OF_MEMORY  # the limit is for all sessions of a tenant
    assert (await other.ask(PUBLISH))[0] == SUCCESS


async def test_no_descriptor_stays_open(enter):
    worker, before = enter(ALICE), len(open_descriptors())
    fd = file(b"")
    for kind in (FIND, WITHDRAW, 0, 77, 2**32 - 1):
        await worker.ask(kind, fds=(fd,))
    for count in (2, 3):  # more descriptors than a request may pass
        assert (await worker.ask(PUBLISH, fds=(fd,) * count))[0] == SUCCESS
    assert (await worker.ask(PUBLISH, fds=(fd,)))[0] == SUCCESS
    assert len(open_descriptors()) == before + 2  # `fd`, and the one that is published
    os.close(fd)


@pytest.mark.parametrize("packet", [b"x", bytes(QUESTION.size - 1), bytes(QUESTION.size + 1), bytes(4000)], ids=len)
async def test_a_packet_of_another_size_ends_the_desk(enter, metrics, packet):
    worker = enter(ALICE)
    await worker.ask(PUBLISH)
    fd = file(b"")
    socket.send_fds(worker.sock, [packet], [fd])
    os.close(fd)
    worker.desk.theirs.close()
    if len(packet) > QUESTION.size:  # vgpud reads its beginning: an unknown request
        assert (await worker.hear())[0] == INVALID_VALUE
    else:
        assert await worker.hear() == ()
        assert metrics.ipc_objects == 0
