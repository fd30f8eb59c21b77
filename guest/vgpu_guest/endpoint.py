"""Endpoints: where vgpud listens and a client connects, written as a URL. The guest's tools and vgpud use this parser;
protocol/data/endpoints.tsv tests it against the libraries' own parser (shim/connect/vgs_endpoint.c).

    unix:/path   tcp://host:port   vsock://cid:port   hybrid-vsock:/path:port

A host is a name, an IPv4 address or an IPv6 address in brackets. Only a listener may say port 0 (any free one) or
the CID `any` (every CID of this machine).
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from dataclasses import dataclass

SUN_PATH_NBYTES = 108  # sockaddr_un.sun_path, terminator included
VMADDR_CID_ANY = 0xFFFFFFFF
_NBYTES_CAP = 255

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
# If the last label begins with a digit, the resolver would accept an address in an old form (127.1, 0x7f.1).
_NUMERIC = re.compile(r"(?:.*\.)?[0-9][^.]*\.?")

_FORMS = "it is none of unix:/PATH, tcp://HOST:PORT, vsock://CID:PORT, hybrid-vsock:/PATH:PORT"
_BAD_HOST = "the host is not a name, IPv4 address or IPv6 address in brackets"


class EndpointError(ValueError):
    """The text is not an endpoint, or this machine does not support its kind."""


@dataclass(frozen=True)
class UnixEndpoint:
    """A socket in the file system."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


@dataclass(frozen=True)
class TcpEndpoint:
    """A host and port; an IPv6 address without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. A name other than localhost may resolve to anything."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_name(self) -> bool:
        """Whether the host has to be resolved. `localhost` has not: it is 127.0.0.1."""
        return not (self.host == "localhost" or ":" in self.host or _NUMERIC.fullmatch(self.host))


@dataclass(frozen=True)
class VsockEndpoint:
    """A VM (or the host, CID 2) and port."""

    cid: int  # VMADDR_CID_ANY: every CID of this machine (listening only)
    port: int

    def __str__(self) -> str:
        return f"vsock://{'any' if self.cid == VMADDR_CID_ANY else self.cid}:{self.port}"


@dataclass(frozen=True)
class HybridVsockEndpoint:
    """A VM whose VMM maps vsock to unix sockets: Firecracker, Cloud Hypervisor, vhost-device-vsock.

    A guest's connection to `port` of the host arrives on the socket `path`_`port`, where the host listens; the host
    reaches a port of the guest by connecting to `path` and asking for it.
    """

    path: str
    port: int

    def __str__(self) -> str:
        return f"hybrid-vsock:{self.path}:{self.port}"

    @property
    def listening_path(self) -> str:
        """The socket at which the guest's connections arrive."""
        return f"{self.path}_{self.port}"


Endpoint = UnixEndpoint | TcpEndpoint | VsockEndpoint | HybridVsockEndpoint


def parse_endpoint(text: str, *, listening: bool = False) -> Endpoint:
    """Read an endpoint's URL, to connect to or, with `listening`, to listen on. Raises: EndpointError: the message
    names the text and what is wrong with it.
    """
    try:
        return _parse(text, listening)
    except _WrongError as error:
        raise EndpointError(f"{text!r}: {error}") from None


class _WrongError(Exception):
    pass


def _parse(text: str, listening: bool) -> Endpoint:
    if len(os.fsencode(text)) > _NBYTES_CAP:
        raise _WrongError(f"it is longer than {_NBYTES_CAP} bytes")
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        raise _WrongError("it has control characters")
    if text.startswith("unix:"):
        path = text[5:]
        return UnixEndpoint(_path(path[2:] if path.startswith("//") else path))
    if text.startswith("hybrid-vsock:"):
        path, digits = _split(text[13:])
        port = _number(digits, 1, VMADDR_CID_ANY - 1, "port")
        _path(f"{path}_{port}")
        return HybridVsockEndpoint(path, port)
    least = 0 if listening else 1
    if text.startswith("tcp://"):
        host, digits = _split(text[6:])
        port = _number(digits, least, 65535, "port")
        return TcpEndpoint(_host(host), port)
    if text.startswith("vsock://"):
        cid, digits = _split(text[8:])
        port = _number(digits, least, VMADDR_CID_ANY - 1, "port")
        if listening and cid.lower() == "any":
            return VsockEndpoint(VMADDR_CID_ANY, port)
        return VsockEndpoint(_number(cid, 0, VMADDR_CID_ANY - 1, "CID"), port)
    raise _WrongError(_FORMS)


def _split(rest: str) -> tuple[str, str]:
    """The parts before and after the last colon."""
    head, colon, digits = rest.rpartition(":")
    return head, digits if colon else ""


def _path(path: str) -> str:
    if not path.startswith("/"):
        raise _WrongError("the path is not absolute")
    if len(os.fsencode(path)) >= SUN_PATH_NBYTES:
        raise _WrongError(f"the path is longer than {SUN_PATH_NBYTES - 1} bytes")
    return path


def _number(text: str, least: int, greatest: int, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and least <= int(text) <= greatest):
        raise _WrongError(f"the {what} is not a number from {least} to {greatest}")
    return int(text)


def _host(host: str) -> str:
    try:
        if host.startswith("[") and host.endswith("]"):
            socket.inet_pton(socket.AF_INET6, host[1:-1])
            return host[1:-1]
        if not _HOST.fullmatch(host):
            raise _WrongError(_BAD_HOST)
        if _NUMERIC.fullmatch(host):
            socket.inet_pton(socket.AF_INET, host)
    except OSError:
        raise _WrongError(_BAD_HOST) from None
    return host


Address = tuple[socket.AddressFamily, str | tuple[str, int] | tuple[int, int] | tuple[str, int, int, int]]


def addresses(endpoint: Endpoint, *, passive: bool = False) -> list[Address]:
    """The socket family and address of an endpoint; several where a name has several, in the resolver's order.

    Args:
        passive: the addresses are for bind, not for connect.
    Raises:
        EndpointError: the name is unknown, or this Python was built without vsock.
    """
    if isinstance(endpoint, UnixEndpoint):
        return [(socket.AF_UNIX, endpoint.path)]
    if isinstance(endpoint, HybridVsockEndpoint):
        return [(socket.AF_UNIX, endpoint.listening_path if passive else endpoint.path)]
    if isinstance(endpoint, VsockEndpoint):
        if not hasattr(socket, "AF_VSOCK"):
            raise EndpointError(f"{endpoint}: this Python was built without vsock")
        return [(socket.AF_VSOCK, (endpoint.cid, endpoint.port))]
    if not endpoint.is_name:
        host = "127.0.0.1" if endpoint.host == "localhost" else endpoint.host
        return [(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, endpoint.port))]
    flags = socket.AI_ADDRCONFIG | socket.AI_NUMERICSERV | (socket.AI_PASSIVE if passive else 0)
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=flags)
    except socket.gaierror as error:
        raise EndpointError(f"{endpoint}: {error.strerror}") from error
    return [(family, address) for family, _, _, _, address in found]  # type: ignore[misc]
