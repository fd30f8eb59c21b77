"""A small synchronous client of the control protocol, for `vgpu devices`, `vgpu ping` and the tests."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, TypeVar

from vgpud.endpoint import Endpoint, connect
from vgpud.proto import (
    Answer,
    Attach,
    Attached,
    ClientConnection,
    ClientInfo,
    Hello,
    Nvml,
    Ping,
    Pong,
    Refused,
    RemoteProtocolError,
    Welcome,
)
from vgpud.proto.message import FEATURES, REGION, ClientMessage, HostMessage

if TYPE_CHECKING:
    import socket
    from types import TracebackType

_Message = TypeVar("_Message", bound=HostMessage)


class RefusedError(Exception):
    """vgpud will not serve this client. `code` is a CUresult."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(f"{refused.reason} (CUresult {refused.code})")
        self.code = refused.code
        self.reason = refused.reason


class Client:
    """One control connection. Every wait ends after `timeout_s`.

    Methods raise RefusedError, RemoteProtocolError, or OSError (TimeoutError, ConnectionError) when the peer is
    silent or gone.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeout_s: float = 10.0,
        token: str | None = None,
        pci: tuple[str, ...] = (),
        region: bool = False,
        features: tuple[str, ...] = FEATURES,
    ) -> None:
        """`pci`: the devices' addresses on this machine; `region`: tell the host that memory shared with it was
        found; `features`: to ask for.
        """
        self._features = features
        self._token = token
        self._pci = pci
        self._region = region
        self._connection = ClientConnection()
        self._sock = connect(endpoint, timeout_s=timeout_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._sock.close()

    def hello(self) -> Welcome:
        """Send hello; the answer holds the inventory."""
        info = ClientInfo(pid=os.getpid(), comm="python", library="vgpud.client")
        features = (*self._features, *((REGION,) if self._region else ()))
        return self._ask(Hello(features=features, client=info, token=self._token, pci=self._pci), Welcome)

    def ping(self) -> float:
        """One round trip, in seconds."""
        start = time.perf_counter()
        self._ask(Ping(), Pong)
        return time.perf_counter() - start

    def nvml(self, call: str, device: int = -1, *arguments: int) -> Answer:
        """Ask one NVML function (or "snapshot"); see protocol/wire.md."""
        return self._ask(Nvml(call, device, arguments), Answer)

    def attach(self, device: int = -1) -> Attached:
        """Request a worker; `device`: of the first context, -1: unknown. From then on the socket carries commands."""
        return self._ask(Attach(device, self._region), Attached)

    def detach(self) -> socket.socket:
        """The socket; ownership passes to the caller."""
        return self._sock

    def _ask(self, message: ClientMessage, expected: type[_Message]) -> _Message:
        with contextlib.suppress(BrokenPipeError):  # a host that refuses and closes has sent the reason before
            self._sock.sendall(self._connection.send(message))
        answer = self._receive()
        if isinstance(answer, Refused):
            raise RefusedError(answer)
        if not isinstance(answer, expected):
            raise RemoteProtocolError(f"{answer.type} came where {expected.type} was due")
        return answer

    def _receive(self) -> HostMessage:
        while True:
            data = self._sock.recv(self._connection.nbytes_wanted)
            if not data:
                raise ConnectionError("the host closed the connection")
            answer = self._connection.receive(data)
            if answer is not None:
                return answer
