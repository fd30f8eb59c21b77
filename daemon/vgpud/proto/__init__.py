"""The control protocol (protocol/wire.md) without I/O: bytes in, messages out; messages in, bytes out."""

from .connection import ClientConnection, HostConnection
from .error import LocalProtocolError, ProtocolError, RemoteProtocolError
from .message import Answer, Attach, Attached, ClientInfo, Hello, Nvml, Ping, Pong, Refused, Welcome

__all__ = [
    "Answer",
    "Attach",
    "Attached",
    "ClientConnection",
    "ClientInfo",
    "Hello",
    "HostConnection",
    "LocalProtocolError",
    "Nvml",
    "Ping",
    "Pong",
    "ProtocolError",
    "Refused",
    "RemoteProtocolError",
    "Welcome",
]
