"""The control protocol (protocol/wire.md) without I/O: bytes in, messages out; messages in, bytes out."""

from .connection import ClientConnection, HostConnection
from .error import LocalProtocolError, ProtocolError, RemoteProtocolError
from .message import Attach, Attached, ClientInfo, Hello, Ping, Pong, Refused, Welcome

__all__ = [
    "Attach",
    "Attached",
    "ClientConnection",
    "ClientInfo",
    "Hello",
    "HostConnection",
    "LocalProtocolError",
    "Ping",
    "Pong",
    "ProtocolError",
    "Refused",
    "RemoteProtocolError",
    "Welcome",
]
