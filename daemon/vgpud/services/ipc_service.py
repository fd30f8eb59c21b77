"""Memory, events and pools that clients of one tenant share: one service socket for each session of an identifiable
tenant. A client receives an unguessable token for an allocation. vgpud keeps what the token refers to: the backend's
handle, which no client sees, and its descriptor. Only another session of the same tenant gets these for the token, and
only until the exporting session ends or the memory is freed; memory that was opened before stays open.

The packets are those of daemon/executor/vgx_ipc.c.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vgpud.cudaerror import CudaError
from vgpud.log import KeyedRateLimit, get_logger

from .desk import Desk

if TYPE_CHECKING:
    import socket

    from vgpud.config_tables import LimitsConfig
    from vgpud.metrics import Metrics
    from vgpud.serving.succession import Incoming, Outgoing
    from vgpud.tenancy.tenant import Identified, Tenant

_QUESTION = struct.Struct("<IIQ64s64s")
_ANSWER = struct.Struct("<iIQ64s")
_TOKEN_NBYTES = 64
_TOTAL_CAP = 16384  # objects of all tenants: each may hold a descriptor of vgpud open
_PUBLISH, _FIND, _WITHDRAW = 1, 2, 3
# enum vgx_ipc_what: memory and events of cuIpc. Other kinds may also be imported by the session that exports them.
_OPENED_ELSEWHERE = (1, 2)


@dataclass(frozen=True, slots=True, eq=False)
class _Object:
    owner: IpcDesk
    what: int  # enum vgx_ipc_what
    nbytes: int
    handle: bytes
    fd: int | None


class IpcService:
    """Owns the shared objects. All methods run on the event loop."""

    def __init__(self, limits: LimitsConfig, metrics: Metrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._objects: dict[bytes, _Object] = {}  # by token
        self._count: Counter[Tenant] = Counter()
        self._desks: set[IpcDesk] = set()
        self._log_limits = KeyedRateLimit(rate=1.0, burst=20.0)  # by peer

    @property
    def is_on(self) -> bool:
        """Whether the service is offered to clients."""
        return self._limits.ipc_objects_per_tenant > 0

    def set_limits(self, limits: LimitsConfig) -> None:
        """Apply reloaded limits; existing objects stay."""
        self._limits = limits

    def open(self, owner: Identified, ours: socket.socket | None = None) -> IpcDesk:
        """Serve a session of this tenant; takes ownership of `owner`. `ours`: vgpud's end of its socket, for a session
        of the previous vgpud.
        """
        desk = IpcDesk(self, owner, ours)
        self._desks.add(desk)
        return desk

    def dump(self, desk: IpcDesk, outgoing: Outgoing) -> list[dict[str, Any]]:
        """The objects that a session shares, for restore()."""
        objects = [(token, self._objects[token]) for token in desk.tokens]
        return [
            {
                "token": token.hex(),
                "what": each.what,
                "nbytes": each.nbytes,
                "handle": each.handle.hex(),
                "fd": None if each.fd is None else outgoing.add(each.fd),
            }
            for token, each in objects
        ]

    def restore(self, desk: IpcDesk, objects: list[dict[str, Any]], incoming: Incoming) -> None:
        """Share again the objects that a session shared in the previous vgpud."""
        for each in objects:
            fd = None if each["fd"] is None else incoming.take(each["fd"])
            handle = bytes.fromhex(each["handle"])
            self._keep(desk, bytes.fromhex(each["token"]), _Object(desk, each["what"], each["nbytes"], handle, fd))

    def close(self) -> None:
        """Close all sockets."""
        for desk in list(self._desks):
            desk.close()

    def publish(self, desk: IpcDesk, what: int, nbytes: int, handle: bytes, fd: int | None) -> bytes | None:
        """Store an object; returns its token, or None if the tenant has too many. Takes ownership of `fd`."""
        tenant = desk.tenant
        if self._count[tenant] >= self._limits.ipc_objects_per_tenant or len(self._objects) >= _TOTAL_CAP:
            if fd is not None:
                os.close(fd)
            self._warn(tenant, f"{self._count[tenant]} allocations and events are shared already")
            return None
        token = secrets.token_bytes(_TOKEN_NBYTES)
        self._keep(desk, token, _Object(desk, what, nbytes, handle, fd))
        return token

    def _keep(self, desk: IpcDesk, token: bytes, shared: _Object) -> None:
        self._objects[token] = shared
        self._count[desk.tenant] += 1
        desk.tokens.add(token)
        self._metrics.ipc_objects += 1

    def find(self, desk: IpcDesk, what: int, token: bytes) -> _Object | CudaError:
        """The object that a session may open by a token. All invalid tokens get the same answer, which reveals
        nothing."""
        found = self._objects.get(token)
        if found is None or found.owner.tenant != desk.tenant or found.what != what:
            self._warn(desk.tenant, "a handle names nothing that this client may open")
            return CudaError.INVALID_VALUE
        # A process opens its own export: the same error as on an H100.
        return CudaError.INVALID_CONTEXT if found.owner is desk and what in _OPENED_ELSEWHERE else found

    def withdraw(self, desk: IpcDesk, token: bytes) -> None:
        """Withdraw an object: it cannot be opened any more. Tokens of other sessions are ignored."""
        if token not in desk.tokens:
            return
        desk.tokens.discard(token)
        gone = self._objects.pop(token)
        self._metrics.ipc_objects -= 1
        if gone.fd is not None:
            os.close(gone.fd)
        self._count[desk.tenant] -= 1
        if not self._count[desk.tenant]:
            del self._count[desk.tenant]

    def leave(self, desk: IpcDesk) -> None:
        """A session has ended: withdraw its objects."""
        for token in list(desk.tokens):
            self.withdraw(desk, token)
        self._desks.discard(desk)

    def _warn(self, tenant: Tenant, why: str) -> None:
        if self._log_limits.of(tenant.peer).allows():
            get_logger().warning("not shared", tenant=tenant.peer, why=why)


class IpcDesk(Desk):
    """One session's socket."""

    def __init__(self, service: IpcService, owner: Identified, ours: socket.socket | None) -> None:
        super().__init__(_QUESTION.size, ours)
        self.tenant = owner.tenant
        self.tokens: set[bytes] = set()  # tokens of this session's objects
        self._owner = owner
        self._service = service

    def closed(self) -> None:
        """Withdraw everything that the session shared."""
        self._service.leave(self)
        self._owner.close()

    def take(self, packet: bytes, fd: int | None) -> None:
        """Answer a request to publish, find or withdraw an object."""
        kind, what, nbytes, token, handle = _QUESTION.unpack(packet)
        if kind == _PUBLISH:
            made = self._service.publish(self, what, nbytes, handle, fd)
            if made is None:
                self._answer(CudaError.OUT_OF_MEMORY)
            else:
                self._answer(CudaError.SUCCESS, token_or_handle=made)
            return
        if fd is not None:
            os.close(fd)
        if kind == _FIND:
            found = self._service.find(self, what, token)
            if isinstance(found, CudaError):
                self._answer(found)
            else:
                self._answer(CudaError.SUCCESS, found.nbytes, found.handle, found.fd)
        elif kind == _WITHDRAW:
            self._service.withdraw(self, token)
            self._answer(CudaError.SUCCESS)
        else:
            self._answer(CudaError.INVALID_VALUE)

    def _answer(
        self, result: CudaError, nbytes: int = 0, token_or_handle: bytes = bytes(_TOKEN_NBYTES), fd: int | None = None
    ) -> None:
        self.answer(_ANSWER.pack(result, 0, nbytes, token_or_handle), fd)
