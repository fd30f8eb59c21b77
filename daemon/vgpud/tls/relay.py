"""`python -m vgpud.tls.relay`: takes TLS connections and hands vgpud a local stream and the client's address for each.

A separate process, as it parses bytes of unauthenticated peers, and as bulk data must not pass vgpud's event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import resource
import socket

from vgpu_guest.tls import carry, server_context

from vgpud.proto.packing import pack_map

_HANDSHAKE_TIMEOUT_S = 10.0
_CONNECTIONS = 4096
_RETRY_S = 0.01  # how long to wait while vgpud does not read


class Relay:
    """Serves one listening socket until the control socket ends."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._count = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, after its handshake."""
        if self._count >= _CONNECTIONS:
            writer.close()
            return
        self._count += 1
        try:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                await self._hand_over(theirs, str(writer.get_extra_info("peername")[0]))
                local = await asyncio.open_connection(sock=ours.dup())
            await carry((reader, writer), local)
        except (OSError, TimeoutError):
            pass  # the client or vgpud has gone, or vgpud accepts no streams
        finally:
            self._count -= 1
            writer.close()

    async def _hand_over(self, stream: socket.socket, host: str) -> None:
        """Send vgpud its end of a stream; retries while vgpud does not read. Raises OSError or TimeoutError."""
        packet = pack_map({"type": "stream", "host": host})
        async with asyncio.timeout(_HANDSHAKE_TIMEOUT_S):
            while True:
                try:
                    socket.send_fds(self._control, [packet], [stream.fileno()])
                except BlockingIOError:
                    await asyncio.sleep(_RETRY_S)
                else:
                    return

    async def run(self, listening: socket.socket, certificate: str, key: str, client_ca: str | None) -> None:
        """Serve. Raises OSError when the certificate cannot be used."""
        loop = asyncio.get_running_loop()
        # A failed handshake is not logged: anybody could fill the log.
        loop.set_exception_handler(lambda _loop, _context: None)
        over = asyncio.Event()
        self._control.setblocking(False)
        loop.add_reader(self._control.fileno(), over.set)  # vgpud sends nothing: readable means closed
        server = await asyncio.start_server(
            self.take,
            sock=listening,
            ssl=server_context(certificate, key, client_ca),
            ssl_handshake_timeout=_HANDSHAKE_TIMEOUT_S,
            backlog=512,
        )
        self._control.send(pack_map({"type": "ready"}))
        await over.wait()
        server.close()


def main() -> None:
    """Run the relay."""
    parser = argparse.ArgumentParser(prog="vgpud.tls.relay")
    parser.add_argument("--listen-fd", type=int, required=True)
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--certificate", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--client-ca")
    options = parser.parse_args()
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    control = socket.socket(fileno=options.control_fd)
    listening = socket.socket(fileno=options.listen_fd)
    asyncio.run(Relay(control).run(listening, options.certificate, options.key, options.client_ca))


if __name__ == "__main__":
    main()
