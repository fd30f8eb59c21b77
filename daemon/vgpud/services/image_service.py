"""Workers' questions about images: a desk for each session whose client can offer images by digest.

The packets are those of daemon/executor/vgx_image_cache.c. A worker can only find, and store, what is its tenant's.
"""

from __future__ import annotations

import asyncio
import os
import struct
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from vgpud.log import KeyedRateLimit, get_logger

from .desk import Desk
from .image_cache import ImageCache, ImageRefused, verify

if TYPE_CHECKING:
    import socket

    from vgpud.config_tables import ImagesConfig
    from vgpud.metrics import Metrics
    from vgpud.tenancy.tenant import Identified, Tenant

_QUESTION = struct.Struct("<IIQ32s")
_ANSWER = struct.Struct("<II")
_FIND, _STORE = 1, 2
_PENDING_CAP = 256  # files of a session that wait to be verified: each holds a descriptor open
_PENDING_TOTAL_CAP = 1024  # of all sessions
_EXPIRE_S = 60.0


class ImageService:
    """Owns the cache and the sockets. All methods run on the event loop."""

    def __init__(self, config: ImagesConfig, metrics: Metrics) -> None:
        self._cache = ImageCache(config)
        self._metrics = metrics
        self._desks: set[ImageDesk] = set()
        self._verifying = asyncio.Lock()  # computing a digest occupies a core, and vgpud uses at most one for it
        self._turns: WeakValueDictionary[Tenant, asyncio.Lock] = WeakValueDictionary()
        self._expiry: asyncio.Task[None] | None = None
        self._log_limits = KeyedRateLimit(rate=1.0, burst=20.0)  # by peer
        self.pending_count = 0  # files that wait to be verified

    @property
    def is_on(self) -> bool:
        """Whether the service is offered to clients."""
        return self._cache.is_on

    def start(self) -> None:
        """Start dropping images of tenants that have long had no session."""
        self._expiry = asyncio.create_task(self._expire())

    def set_config(self, config: ImagesConfig) -> None:
        """Apply reloaded limits."""
        self._cache.set_config(config)
        self._count()

    def open(self, owner: Identified, ours: socket.socket | None = None) -> ImageDesk:
        """Serve a session of this tenant; takes ownership of `owner`. `ours`: vgpud's end of its socket, for a session
        of the previous vgpud.
        """
        self._cache.enter(owner)
        desk = ImageDesk(self, owner.tenant, self._turns.setdefault(owner.tenant, asyncio.Lock()), ours)
        self._desks.add(desk)
        self._count()
        return desk

    async def close(self) -> None:
        """Close all sockets, and drop the images."""
        if self._expiry is not None:
            self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)
        for desk in list(self._desks):
            desk.close()
        self._cache.close()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRE_S)
            self._cache.expire()
            self._count()

    def _leave(self, desk: ImageDesk) -> None:
        self._desks.discard(desk)
        self._cache.leave(desk.tenant)
        self._count()

    def find(self, tenant: Tenant, digest: bytes, nbytes: int) -> int | None:
        """The cache's descriptor of an image; hits and misses are counted."""
        fd = self._cache.find(tenant, digest, nbytes)
        if fd is None:
            self._metrics.image_misses += 1
        else:
            self._metrics.image_hits += 1
            self._metrics.image_nbytes_spared += nbytes
        return fd

    async def store(self, tenant: Tenant, turn: asyncio.Lock, digest: bytes, nbytes: int, fd: int) -> None:
        """Verify a file and keep it; takes ownership of `fd`. Each tenant has at most one file in the queue, so that a
        flood delays only its sender."""
        try:
            self._cache.check_room(nbytes)
            async with turn, self._verifying:
                await asyncio.to_thread(verify, fd, digest, nbytes)
        except BaseException as error:
            os.close(fd)
            if not isinstance(error, ImageRefused):
                raise
            self._metrics.images_refused += 1
            if self._log_limits.of(tenant.peer).allows():
                get_logger().warning("image not kept", tenant=tenant.peer, why=str(error))
            return
        self._metrics.image_nbytes_uploaded += nbytes
        self._cache.store(tenant, digest, nbytes, fd)
        self._count()

    def _count(self) -> None:
        self._metrics.images_held = self._cache.image_count
        self._metrics.image_nbytes_held = self._cache.nbytes
        self._metrics.image_tenants = self._cache.tenant_count


class ImageDesk(Desk):
    """One session's socket."""

    def __init__(
        self, service: ImageService, tenant: Tenant, turn: asyncio.Lock, ours: socket.socket | None = None
    ) -> None:
        super().__init__(_QUESTION.size, ours)
        self.tenant = tenant
        self._turn = turn
        self._service = service
        self._pending: set[asyncio.Task[None]] = set()

    def closed(self) -> None:
        """Leave the service, after the files in the queue are verified."""
        if not self._pending:
            self._service._leave(self)

    def take(self, packet: bytes, fd: int | None) -> None:
        """Answer a request to find or to store an image."""
        kind, _zero, nbytes, digest = _QUESTION.unpack(packet)
        if kind == _FIND and fd is None:
            found = self._service.find(self.tenant, digest, nbytes)
            self.answer(_ANSWER.pack(found is not None, 0), found)
        elif kind == _STORE and fd is not None and self._has_room():
            self._service.pending_count += 1
            store = self._service.store(self.tenant, self._turn, digest, nbytes, fd)
            task = asyncio.get_running_loop().create_task(store)
            self._pending.add(task)
            task.add_done_callback(self._stored)
        elif fd is not None:
            os.close(fd)

    def _has_room(self) -> bool:
        return len(self._pending) < _PENDING_CAP and self._service.pending_count < _PENDING_TOTAL_CAP

    def _stored(self, task: asyncio.Task[None]) -> None:
        self._pending.discard(task)
        self._service.pending_count -= 1
        if not task.cancelled() and task.exception() is not None:
            get_logger().error("an image could not be verified", error=repr(task.exception()))
        if not self.is_open and not self._pending:
            self._service._leave(self)
