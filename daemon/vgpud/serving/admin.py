"""The admin socket: sends the daemon's state as one JSON document to whoever may open it (root and the owner)."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from typing import TYPE_CHECKING

from vgpud.log import get_logger
from vgpud.tenancy.peer import identify

if TYPE_CHECKING:
    from collections.abc import Callable

    from .listener import Listener

_WRITE_TIMEOUT_S = 5.0


class AdminServer:
    """Answers each connection with `status()` and closes it; nothing is read from it."""

    def __init__(self, listener: Listener, status: Callable[[], dict[str, object]]) -> None:
        self.listener = listener
        self._status = status
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Serve the listener."""
        self._server = await asyncio.start_unix_server(self._answer, sock=self.listener.sock.dup())

    async def close(self) -> None:
        """Stop serving; the listener stays open."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _answer(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            fd = writer.get_extra_info("socket").fileno()
            with socket.socket(fileno=os.dup(fd)) as sock:
                uid = identify(sock, None).uid
            if uid not in (0, os.geteuid()):  # the file's mode says the same; this holds even if somebody widened it
                get_logger().warning("admin refused", uid=uid)
                return
            async with asyncio.timeout(_WRITE_TIMEOUT_S):
                writer.write(json.dumps(self._status()).encode() + b"\n")
                await writer.drain()
        except (OSError, TimeoutError):
            pass
        finally:
            writer.close()
