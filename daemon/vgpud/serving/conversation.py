"""What vgpud and a client say to each other before a worker has the connection: frames with time limits."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING

from vgpud.proto import Hello, HostConnection, Refused
from vgpud.proto.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from vgpud.config_tables import LimitsConfig
    from vgpud.cudaerror import CudaError
    from vgpud.metrics import Metrics
    from vgpud.proto.message import ClientMessage, HostMessage
    from vgpud.tenancy.session import Session

_LINGER_NBYTES = 64 * 1024
_LINGER_S = 1.0


class Gone(Exception):
    """The client closed the connection, or vanished."""


class Frozen(Exception):
    """vgpud is being replaced; all frames that the client has begun have been answered."""


class Silence:
    """The connections that wait for a frame, which freeze() ends: between two frames, so that none is lost."""

    def __init__(self) -> None:
        self.is_frozen = False
        self._waiting: set[asyncio.Future[None]] = set()

    def freeze(self) -> None:
        """No connection waits for a frame from now on."""
        self.is_frozen = True
        for future in list(self._waiting):
            if not future.done():
                future.set_result(None)

    async def wait(self, sock: socket.socket) -> None:
        """Wait for a frame's first byte without reading it. Raises Frozen."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if self.is_frozen:
            raise Frozen
        self._waiting.add(future)
        loop.add_reader(sock.fileno(), lambda: None if future.done() else future.set_result(None))
        try:
            await future
        finally:
            loop.remove_reader(sock.fileno())
            self._waiting.discard(future)
        if self.is_frozen:
            raise Frozen


class Conversation:
    """One connection, which stays its owner's. Methods raise Gone, OSError, TimeoutError and RemoteProtocolError."""

    def __init__(
        self,
        sock: socket.socket,
        silence: Silence,
        limits: Callable[[], LimitsConfig],
        metrics: Metrics,
        *,
        welcomed: bool,
    ) -> None:
        """`limits`: those that hold now. `welcomed`: by the previous vgpud."""
        self._sock, self._silence, self._limits, self._metrics = sock, silence, limits, metrics
        self._connection = HostConnection(welcomed=welcomed)

    async def hello(self) -> Hello:
        """The client's first message. Raises Frozen."""
        async with asyncio.timeout(self._limits().hello_timeout_s):
            await self._silence.wait(self._sock)
            hello = await self._receive()
        assert isinstance(hello, Hello)  # the only message that the state machine allows here
        return hello

    async def question(self, session: Session) -> ClientMessage:
        """The next message of a client that was welcomed. Only between frames may it idle. Raises Frozen."""
        async with asyncio.timeout(self._limits().attach_timeout_s):
            await self._silence.wait(self._sock)
            first = await asyncio.get_running_loop().sock_recv(self._sock, self._connection.nbytes_wanted)  # no wait
        session.heard_at = time.monotonic()
        if not first:
            raise Gone
        message = self._connection.receive(first)
        if message is None:
            async with asyncio.timeout(self._limits().frame_timeout_s):
                message = await self._receive()
        return message

    async def send(self, message: HostMessage) -> None:
        """Send a message within the time limit for frames."""
        async with asyncio.timeout(self._limits().frame_timeout_s):
            await asyncio.get_running_loop().sock_sendall(self._sock, self._connection.send(message))

    async def refuse(self, code: CudaError, reason: str) -> None:
        """Send the last message, if the client still reads. Raises nothing."""
        try:
            await self.send(Refused(code, reason))
            self._sock.shutdown(socket.SHUT_WR)
            await self._linger()
        except (OSError, TimeoutError):
            pass

    async def _receive(self) -> ClientMessage:
        """The next message. Never reads past its last byte: what follows an attach is the worker's."""
        loop, connection = asyncio.get_running_loop(), self._connection
        while True:
            data = await loop.sock_recv(self._sock, min(connection.nbytes_wanted, 64 * 1024))
            if not data:
                raise Gone
            if connection.state is State.OPEN:
                self._metrics.nbytes_before_admission += len(data)
            message = connection.receive(data)
            if message is not None:
                return message

    async def _linger(self) -> None:
        """Read what the client still sends: closing a socket with unread bytes would reset TCP and lose the refusal."""
        left_nbytes = _LINGER_NBYTES
        async with asyncio.timeout(_LINGER_S):
            while left_nbytes > 0:
                data = await asyncio.get_running_loop().sock_recv(self._sock, left_nbytes)
                if not data:
                    return
                left_nbytes -= len(data)
