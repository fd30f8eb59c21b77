"""Sockets of endpoints (vgpu_guest.endpoint has the grammar), and where vgpud listens by default."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from vgpu_guest.endpoint import (
    VMADDR_CID_ANY,
    Endpoint,
    EndpointError,
    HybridVsockEndpoint,
    TcpEndpoint,
    UnixEndpoint,
    VsockEndpoint,
    addresses,
    parse_endpoint,
)

__all__ = [
    "VMADDR_CID_ANY", "Endpoint", "EndpointError", "HybridVsockEndpoint", "TcpEndpoint", "UnixEndpoint",
    "VsockEndpoint", "bound_socket", "connect", "default_endpoint", "parse_endpoint", "runtime_directory",
]  # fmt: skip

_HYBRID_ANSWER_NBYTES = 32  # "OK <port>\n"


def runtime_directory() -> Path:
    """The folder of the sockets unless configured: systemd's RuntimeDirectory, /run/vgpu for root, else the user's
    own."""
    given = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if given:
        return Path(given)
    if os.geteuid() == 0:
        return Path("/run/vgpu")
    base = os.environ.get("XDG_RUNTIME_DIR")
    # open_listener checks who owns the folder in /tmp.
    return Path(base) / "vgpu" if base else Path(f"/tmp/vgpu-{os.geteuid()}")  # noqa: S108


def default_endpoint() -> UnixEndpoint:
    """The default endpoint of vgpud, where `vgpu` looks for it."""
    return UnixEndpoint(str(runtime_directory() / "vgpud.sock"))


def _create_socket(endpoint: Endpoint, family: socket.AddressFamily) -> socket.socket:
    try:
        return socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        if isinstance(endpoint, VsockEndpoint):
            raise EndpointError(f"{endpoint}: this kernel has no vsock ({error.strerror})") from error
        raise


def bound_socket(endpoint: Endpoint) -> socket.socket:
    """A stream socket bound to the endpoint: of a name, to its first address. Raises OSError or EndpointError."""
    family, address = addresses(endpoint, passive=True)[0]
    sock = _create_socket(endpoint, family)
    try:
        if isinstance(endpoint, TcpEndpoint):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def connect(endpoint: Endpoint, *, timeout_s: float) -> socket.socket:
    """A connected stream socket with that timeout, for each address of a name. Raises OSError or EndpointError."""
    failure: OSError | None = None
    for family, address in addresses(endpoint):
        sock = _create_socket(endpoint, family)
        try:
            sock.settimeout(timeout_s)
            sock.connect(address)
            if isinstance(endpoint, TcpEndpoint):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            elif isinstance(endpoint, HybridVsockEndpoint):
                _ask_for_port(sock, endpoint.port)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure or OSError(errno.EADDRNOTAVAIL, "the name has no address")


def _ask_for_port(sock: socket.socket, port: int) -> None:
    """The VMM's answer is `OK` and a port of its own; it closes the connection when no program listens in the guest."""
    sock.sendall(f"CONNECT {port}\n".encode())
    answer = b""
    while not answer.endswith(b"\n"):
        byte = sock.recv(1)  # reads no further than the line: the bytes after it belong to the stream
        if not byte:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"the VM refused port {port}")
        answer += byte
        if len(answer) > _HYBRID_ANSWER_NBYTES:
            break
    if not answer.startswith(b"OK ") or not answer.endswith(b"\n"):
        raise ConnectionError(errno.EPROTO, f"no hybrid vsock answers there: {answer!r}")
