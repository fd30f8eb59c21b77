"""A worker's socket to the image cache: requests are checked; a tenant's flood does not delay other tenants' images."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Callable

import pytest
from vgpud.config_tables import ImagesConfig
from vgpud.metrics import Metrics
from vgpud.services import image_service
from vgpud.services.image_digest import image_digest
from vgpud.services.image_service import ImageService
from vgpud.tenancy.tenant import Identified, Tenant

from tests.daemon.services.test_image_cache import sealed
from tests.descriptors import open_descriptors
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.asyncio

ALICE, BOB = Tenant("uid:1", None), Tenant("uid:2", None)
FIND, STORE = 1, 2


def question(kind: int, data: bytes) -> bytes:
    return struct.pack("<IIQ32s", kind, 0, len(data), image_digest(data))


def store(sock: socket.socket, data: bytes) -> None:
    fd = sealed(data)
    socket.send_fds(sock, [question(STORE, data)], [fd])
    os.close(fd)


async def find(sock: socket.socket, data: bytes) -> bytes | None:
    """The bytes of the file in the answer, padding included; None if the cache does not have the image."""
    sock.send(question(FIND, data))
    sock.setblocking(False)
    await asyncio.wait_for(readable(sock), PATIENCE_S)
    answer, fds, _, _ = socket.recv_fds(sock, 64, 4)
    assert struct.unpack("<II", answer) == (len(fds), 0)
    if not fds:
        return None
    try:
        return os.pread(fds[0], os.fstat(fds[0]).st_size, 0)
    finally:
        os.close(fds[0])


async def readable(sock: socket.socket) -> None:
    ready = asyncio.Event()
    asyncio.get_running_loop().add_reader(sock, ready.set)
    await ready.wait()
    asyncio.get_running_loop().remove_reader(sock)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_store_and_find():
    metrics = Metrics()
    service = ImageService(ImagesConfig(), metrics)
    alice, bob = service.open(Identified(ALICE)), service.open(Identified(BOB))
    data = os.urandom(100_000)
    assert await find(alice.theirs, data) is None
    store(alice.theirs, data)
    await until(lambda: metrics.images_held == 1)
    assert await find(alice.theirs, data) == data + bytes(64)
    assert await find(bob.theirs, data) is None
    alice.close()
    again = service.open(Identified(ALICE))
    assert await find(again.theirs, data) == data + bytes(64)
    await service.close()
    assert (metrics.image_hits, metrics.image_misses) == (2, 2)


@pytest.mark.parametrize("packet", [b"", b"x", bytes(49), struct.pack("<IIQ32s", 9, 0, 1, b"")])
async def test_what_is_no_question_finds_and_keeps_nothing(packet):
    before = open_descriptors()
    service = ImageService(ImagesConfig(), Metrics())
    desk = service.open(Identified(ALICE))
    fds = [sealed(b"data"), sealed(b"data")]
    for count in (0, 1, 2):
        try:
            socket.send_fds(desk.theirs, [packet], fds[:count])
        except OSError:  # vgpud has hung up already
            break
        await asyncio.sleep(0.05)
    for fd in fds:
        os.close(fd)
    await service.close()
    assert open_descriptors() <= before


async def test_a_flood_of_one_tenant_holds_up_no_other(monkeypatch):
    order: list[int] = []
    go = threading.Semaphore(0)

    def verify(fd: int, digest: bytes, nbytes: int) -> None:
        go.acquire(timeout=PATIENCE_S)
        order.append(nbytes)

    monkeypatch.setattr(image_service, "verify", verify)
    service = ImageService(ImagesConfig(), Metrics())
    alice, bob = service.open(Identified(ALICE)), service.open(Identified(BOB))
    for nbytes in range(1, 9):
        store(alice.theirs, bytes(nbytes))
    await until(lambda: service.pending_count == 8)
    store(bob.theirs, bytes(1000))
    await until(lambda: service.pending_count == 9)
    for _ in range(9):
        go.release()
    await until(lambda: len(order) == 9)
    assert order.index(1000) <= 2
    await service.close()


async def test_a_session_that_ends_while_its_image_is_verified(monkeypatch):
    metrics = Metrics()
    begun, go = threading.Event(), threading.Event()

    def verify(fd: int, digest: bytes, nbytes: int) -> None:
        begun.set()
        go.wait(PATIENCE_S)

    monkeypatch.setattr(image_service, "verify", verify)
    service = ImageService(ImagesConfig(), metrics)
    desk = service.open(Identified(ALICE))
    store(desk.theirs, b"image")
    await until(begun.is_set)
    desk.close()
    desk.close()
    go.set()
    await until(lambda: metrics.images_held == 1)
    await service.close()
