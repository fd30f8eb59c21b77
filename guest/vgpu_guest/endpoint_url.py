"""Which endpoints our libraries accept (shim/connect/vgs_endpoint.c), said before they are written down."""

from __future__ import annotations

import ipaddress
import re

_NBYTES_CAP = 255  # of a URL
_PATH_CAP = 107  # of a unix socket: sun_path holds 108 bytes with its NUL
_PORT_CAP, _VSOCK_CAP = 65535, 2**32 - 1


class EndpointError(ValueError):
    """An endpoint that the libraries would not accept; the message says why."""


def check_endpoint(url: str) -> str:
    """The URL itself, if the libraries accept it.

    Raises:
        EndpointError: not one of unix:/PATH, tcp://ADDRESS:PORT, vsock://CID:PORT.
    """
    if len(url.encode()) > _NBYTES_CAP or not url.isascii() or not url.isprintable() or re.search(r"[\s\"'\\$%]", url):
        raise EndpointError("an endpoint has at most 255 plain characters, no blanks or quotes")
    scheme, colon, rest = url.partition(":")
    if scheme == "unix" and rest.startswith("/"):
        if len(rest) > _PATH_CAP:
            raise EndpointError(f"the path of a socket has at most {_PATH_CAP} characters")
        return url
    if scheme in ("tcp", "vsock") and rest.startswith("//"):
        host, colon, port = rest[2:].rpartition(":")
        greatest = _PORT_CAP if scheme == "tcp" else _VSOCK_CAP
        if colon and _is_number(port, greatest) and ((scheme == "tcp" and int(port) > 0) or scheme == "vsock"):
            if scheme == "vsock" and _is_number(host, _VSOCK_CAP):
                return url
            if scheme == "tcp" and _is_address(host):
                return url
            if scheme == "tcp":
                raise EndpointError(f"{host!r} is no address: the libraries look up no names, say tcp://10.0.0.1:7070")
    raise EndpointError(f"{url!r} is none of unix:/PATH, tcp://ADDRESS:PORT, vsock://CID:PORT")


def socket_path(url: str) -> str | None:
    """The path of a unix socket's URL; None for others."""
    return url[len("unix:") :] if url.startswith("unix:") else None


def _is_number(text: str, greatest: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= greatest


def _is_address(host: str) -> bool:
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        if bracketed:
            ipaddress.IPv6Address(host[1:-1])
        elif host != "localhost":
            ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True
