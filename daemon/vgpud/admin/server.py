"""The admin socket: HTTP for users who may open it (root and the owner)."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

from vgpud.log import get_logger
from vgpud.tenancy.peer import identify

from .http import Request, Response, serve

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from vgpud.serving.listener import Listener
    from vgpud.tenancy.peer import Peer

_CONNECTIONS = 64


class AdminServer:
    """Answers requests with `answer`, which may raise HttpError."""

    def __init__(self, listener: Listener, answer: Callable[[Request], Awaitable[Response]]) -> None:
        self.listener = listener
        self._handle = answer
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Serve the listener."""
        self._server = await asyncio.start_unix_server(self._connected, sock=self.listener.sock.dup())

    async def close(self) -> None:
        """Stop serving, streams included; the listener stays open."""
        if self._server is None:
            return
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            peer = self._identify(writer)
            if peer is None or len(self._connections) >= _CONNECTIONS:
                return
            self._connections.add(task)
            by = f"{peer.key} pid {peer.pid}"
            await serve(reader, writer, lambda request: self._handle(replace(request, by=by)))
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # the client left, or vgpud ends
        finally:
            self._connections.discard(task)
            writer.close()

    @staticmethod
    def _identify(writer: asyncio.StreamWriter) -> Peer | None:
        """The peer; None if it may not use this socket. The file's mode already restricts access; this check also
        holds if the mode was changed.
        """
        with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as sock:
            peer = identify(sock, None)
        if peer.uid in (0, os.geteuid()):
            return peer
        get_logger().warning("admin refused", uid=peer.uid)
        return None
