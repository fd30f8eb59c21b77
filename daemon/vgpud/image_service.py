"""Workers' questions about images: a socket for each session whose client can offer images by digest.

One SOCK_SEQPACKET packet a message, as daemon/executor/vgx_image_cache.c lays it out. The worker serves a tenant and is
believed no more than one: it can only find, and store, what is that tenant's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from .image_cache import ImageCache, ImageRefused, verify
from .log import KeyedRateLimit, get_logger

if TYPE_CHECKING:
    from .config import ImagesConfig
    from .metrics import Metrics
    from .tenant import Identified, Tenant

_QUESTION = struct.Struct("<IIQ32s")
_ANSWER = struct.Struct("<II")
_FIND, _STORE = 1, 2
_PENDING_CAP = 256  # files of a session that wait to be verified: each is a descriptor
_PENDING_TOTAL_CAP = 1024  # of all sessions
_UNREAD_NBYTES = 4096  # of answers, some eight: more descriptors on their way would count against all of vgpud's
_EXPIRE_S = 60.0


class ImageService:
    """Owns the cache and the sockets. All methods run on the event loop."""

    def __init__(self, config: ImagesConfig, metrics: Metrics) -> None:
        self._cache = ImageCache(config)
        self._metrics = metrics
        self._desks: set[ImageDesk] = set()
        self._verifying = asyncio.Lock()  # digesting takes a core: one is what vgpud spends on it
        self._turns: WeakValueDictionary[Tenant, asyncio.Lock] = WeakValueDictionary()
        self._expiry: asyncio.Task[None] | None = None
        self._log_limits = KeyedRateLimit(rate=1.0, burst=20.0)  # by peer
        self.pending_count = 0  # files that wait to be verified

    @property
    def is_on(self) -> bool:
        """Whether clients are offered it."""
        return self._cache.is_on

    def start(self) -> None:
        """Begin to drop what is not wanted any more."""
        self._expiry = asyncio.create_task(self._expire())

    def set_config(self, config: ImagesConfig) -> None:
        """Take reloaded bounds."""
        self._cache.set_config(config)
        self._count()

    def open(self, owner: Identified) -> ImageDesk:
        """Serve a session of this tenant; `owner` becomes ours."""
        self._cache.enter(owner)
        desk = ImageDesk(self, owner.tenant, self._turns.setdefault(owner.tenant, asyncio.Lock()))
        self._desks.add(desk)
        self._count()
        return desk

    async def close(self) -> None:
        """End all of it."""
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
        """A descriptor, which stays the cache's; counted."""
        fd = self._cache.find(tenant, digest, nbytes)
        if fd is None:
            self._metrics.image_misses += 1
        else:
            self._metrics.image_hits += 1
            self._metrics.image_nbytes_spared += nbytes
        return fd

    async def store(self, tenant: Tenant, turn: asyncio.Lock, digest: bytes, nbytes: int, fd: int) -> None:
        """Verify a file and keep it; `fd` becomes ours. Of each tenant one file is in the queue: who floods, waits."""
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


class ImageDesk:
    """One session's socket. `theirs` is for the worker; whoever hands it over closes it."""

    def __init__(self, service: ImageService, tenant: Tenant, turn: asyncio.Lock) -> None:
        self.tenant = tenant
        self._turn = turn
        self._service = service
        self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNREAD_NBYTES)
        self._pending: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._ours.fileno(), self._read)
        self._is_open = True

    def close(self) -> None:
        """The session is over; files that wait to be verified still are. Closing again does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._ours.fileno())
        self._ours.close()
        self.theirs.close()
        if not self._pending:
            self._service._leave(self)

    def _read(self) -> None:
        """One message; the loop calls again while there are more."""
        try:
            packet, fds, _flags, _address = socket.recv_fds(self._ours, _QUESTION.size, 4, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            packet, fds = b"", []
        fd = fds[0] if len(fds) == 1 else None
        for other in fds if fd is None else []:
            os.close(other)
        if len(packet) != _QUESTION.size:  # its end of file, or a worker that is not ours any more
            if fd is not None:
                os.close(fd)
            self.close()
            return
        kind, _zero, nbytes, digest = _QUESTION.unpack(packet)
        if kind == _FIND and fd is None:
            self._answer(self._service.find(self.tenant, digest, nbytes))
        elif kind == _STORE and fd is not None and self._has_room():
            self._service.pending_count += 1
            task = self._loop.create_task(self._service.store(self.tenant, self._turn, digest, nbytes, fd))
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
        if not self._is_open and not self._pending:
            self._service._leave(self)

    def _answer(self, fd: int | None) -> None:
        packet = _ANSWER.pack(fd is not None, 0)
        with contextlib.suppress(OSError):  # it does not read: it will do without
            socket.send_fds(self._ours, [packet], [] if fd is None else [fd])
