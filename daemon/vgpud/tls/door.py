"""vgpud's side of the relay: starts it, takes the streams that it hands over, and starts another when it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from vgpud.log import get_logger
from vgpud.proto.packet import receive_packet
from vgpud.proto.packing import unpack_map
from vgpud.supervision.child_environment import child_environment
from vgpud.tenancy.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from vgpud.config_tables import TlsConfig
    from vgpud.serving.listener import Listener

_PACKET_NBYTES = 4096
_STREAMS_A_TURN = 16
_RETRY_S = 1.0
_START_TIMEOUT_S = 10.0
_END_TIMEOUT_S = 10.0


class TlsDoor:
    """One relay. `admit(sock, peer)` gets each new stream. All methods run on the event loop."""

    def __init__(self, config: TlsConfig, listener: Listener, admit: Callable[[socket.socket, Peer], None]) -> None:
        self.listener = listener
        self._config = config
        self._admit = admit
        self._log = get_logger()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._ready = asyncio.Event()

    def start(self) -> None:
        """Start the relay."""
        self._retry = None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        config, fds = self._config, (self.listener.sock.fileno(), theirs.fileno())
        command = [
            sys.executable,
            "-P",
            "-m",
            "vgpud.tls.relay",
            "--listen-fd",
            str(fds[0]),
            "--control-fd",
            str(fds[1]),
        ]
        command += ["--certificate", config.certificate, "--key", config.key or config.certificate]
        command += [] if config.client_ca is None else ["--client-ca", config.client_ca]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command,
                    env=child_environment(),
                    pass_fds=fds,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    process_group=0,
                )
        except OSError as error:
            ours.close()
            self._log.warning("the TLS relay cannot be started", error=str(error))
            self._retry = asyncio.get_running_loop().call_later(_RETRY_S, self.start)
            return
        ours.setblocking(False)
        self._control = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read)

    async def wait_ready(self) -> None:
        """Wait until clients can connect, or log after a time limit that the relay is not ready."""
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await self._ready.wait()
        except TimeoutError:
            self._log.warning("the TLS relay is not ready yet")

    async def stop(self) -> None:
        """End the relay, and with it every stream that it carries."""
        if self._retry is not None:
            self._retry.cancel()
        self._hang_up()
        if self._process is not None:
            await asyncio.to_thread(_end, self._process)

    def _hang_up(self) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None

    def _read(self) -> None:
        for _ in range(_STREAMS_A_TURN):
            assert self._control is not None
            received = receive_packet(self._control, _PACKET_NBYTES)
            if received is None:
                return
            packet, fds = received
            if not packet:
                self._ended()
                return
            try:
                self._take(packet, fds)
            finally:
                for fd in fds:
                    os.close(fd)

    def _take(self, packet: bytes, fds: list[int]) -> None:
        try:
            message = unpack_map(packet)
        except ValueError:
            return
        if message.get("type") == "ready":
            self._ready.set()
        elif message.get("type") == "stream" and fds:
            sock = socket.socket(fileno=fds.pop())
            sock.setblocking(False)
            self._admit(sock, Peer("tcp", host=str(message.get("host"))[:64]))

    def _ended(self) -> None:
        """Start another relay later. A relay reports an unusable certificate on vgpud's standard error."""
        self._hang_up()
        assert self._process is not None
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, _end, self._process)
        self._process = None
        self._log.warning("the TLS relay ended: its clients' sessions are over")
        self._retry = loop.call_later(_RETRY_S, self.start)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a relay and reap it. A relay that the kernel does not end in time is not reaped."""
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_TIMEOUT_S)
