"""The resources that a compromised worker can make vgpud spend by its requests for images."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import struct
import time
from collections.abc import Iterator

import pytest
import structlog
from vgpud.config_tables import ImagesConfig
from vgpud.log import configure_log
from vgpud.metrics import Metrics
from vgpud.services import image_service
from vgpud.services.image_cache import PADDING_NBYTES
from vgpud.services.image_service import ImageService
from vgpud.tenancy.tenant import Identified, Tenant

from tests.daemon.services.test_image_cache import sealed
from tests.descriptors import open_descriptors

FIND, STORE = 1, 2


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What vgpud would log."""
    out = io.StringIO()
    configure_log("info", "human", file=out)
    yield out
    structlog.reset_defaults()


def question(kind: int, data: bytes, digest: bytes = bytes(32)) -> bytes:
    return struct.pack("<IIQ32s", kind, 0, len(data), digest)


def store(worker: socket.socket, data: bytes, digest: bytes) -> None:
    """Send a store request; do not wait for vgpud to execute it."""
    fd = sealed(data)
    try:
        socket.send_fds(worker, [question(STORE, data, digest)], [fd])
    finally:
        os.close(fd)


@pytest.mark.asyncio
async def test_lies_about_content_do_not_flood_the_log(log):
    async def scenario() -> int:
        metrics = Metrics()
        service = ImageService(ImagesConfig(), metrics)
        desk = service.open(Identified(Tenant("uid:1", None)))
        desk.theirs.setblocking(False)
        for number in range(200):
            store(desk.theirs, b"x", bytes([number]) * 32)
            while metrics.images_refused <= number:
                await asyncio.sleep(0)
        await service.close()
        return metrics.images_refused

    begin = time.monotonic()
    assert await scenario() == 200
    assert 1 <= log.getvalue().count("image not kept") <= 21 + (time.monotonic() - begin)  # ImageService's limit


@pytest.mark.asyncio
async def test_files_that_wait_are_bounded_over_all_sessions(monkeypatch):
    monkeypatch.setattr(image_service, "_PENDING_CAP", 4)
    monkeypatch.setattr(image_service, "_PENDING_TOTAL_CAP", 10)

    service = ImageService(ImagesConfig(), Metrics())
    desks = [service.open(Identified(Tenant(f"uid:{i}", None))) for i in range(8)]
    before = len(open_descriptors())
    async with service._verifying:  # one large image keeps all others waiting
        for number in range(6):
            for desk in desks:
                store(desk.theirs, b"x", bytes([number]) * 32)
            await asyncio.sleep(0.01)
        held = len(open_descriptors()) - before
    while service.pending_count:
        await asyncio.sleep(0.01)
    await service.close()
    assert held == 10


@pytest.mark.asyncio
async def test_answers_that_are_not_read_hold_few_descriptors_in_flight():
    """The kernel limits a user's descriptors in flight; with too many of them vgpud could send no more."""
    from vgpud.services.image_digest import image_digest

    data = b"y" * 100

    metrics = Metrics()
    service = ImageService(ImagesConfig(), metrics)
    desk = service.open(Identified(Tenant("uid:1", None)))
    store(desk.theirs, data, image_digest(data))
    while not metrics.images_held:
        await asyncio.sleep(0.01)
    for asked in range(1, 501):
        desk.theirs.send(question(FIND, data, image_digest(data)))
        while metrics.image_hits < asked:
            await asyncio.sleep(0)
    desk.theirs.setblocking(False)
    answers = 0
    try:
        while True:
            _, fds, _, _ = socket.recv_fds(desk.theirs, 100, 1)
            for fd in fds:
                assert os.fstat(fd).st_size == len(data) + PADDING_NBYTES
                os.close(fd)
            answers += 1
    except BlockingIOError:
        pass
    await service.close()
    assert 1 <= answers <= 16


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", [0, 3, 2**32 - 1])
async def test_an_unknown_question_is_not_answered_and_leaves_nothing_open(kind):
    service = ImageService(ImagesConfig(), Metrics())
    desk = service.open(Identified(Tenant("uid:1", None)))
    before = len(open_descriptors())
    fd = sealed(b"x")
    socket.send_fds(desk.theirs, [question(kind, b"x")], [fd, fd])
    socket.send_fds(desk.theirs, [question(kind, b"x")], [fd])
    os.close(fd)
    while len(open_descriptors()) != before:
        await asyncio.sleep(0.01)
    await service.close()
