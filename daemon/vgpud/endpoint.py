"""Endpoints: where vgpud listens and a client connects, written as a URL.

unix:/path, tcp://host:port, vsock://cid:port, hybrid-vsock:/path:port.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from dataclasses import dataclass
from pathlib import Path

SUN_PATH_NBYTES = 108  # sockaddr_un.sun_path, terminator included
VMADDR_CID_ANY = 0xFFFFFFFF


class EndpointError(ValueError):
    """The text is not an endpoint, or this machine cannot do it."""


@dataclass(frozen=True, slots=True)
class UnixEndpoint:
    """A socket in the file system."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class VsockEndpoint:
    """A VM (or the host, CID 2) and port."""

    cid: int  # VMADDR_CID_ANY: every CID of this machine (listening only)
    port: int

    def __str__(self) -> str:
        return f"vsock://{'any' if self.cid == VMADDR_CID_ANY else self.cid}:{self.port}"


@dataclass(frozen=True, slots=True)
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
        """Where the guest's connections arrive."""
        return f"{self.path}_{self.port}"


Endpoint = UnixEndpoint | TcpEndpoint | VsockEndpoint | HybridVsockEndpoint

_HYBRID_ANSWER_NBYTES = 32  # "OK <port>\n"


def _port(text: str, whole: str, highest: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= highest):
        raise EndpointError(f"{whole!r}: {text!r} is not a port (0 to {highest})")
    return int(text)


def _check_path(path: str, whole: str, form: str) -> None:
    if not path.startswith("/") or "\0" in path:
        raise EndpointError(f"{whole!r}: {form}")
    if len(os.fsencode(path)) >= SUN_PATH_NBYTES:
        raise EndpointError(f"{whole!r}: the path is longer than {SUN_PATH_NBYTES - 1} bytes, the kernel's limit")


def parse_endpoint(text: str) -> Endpoint:
    """Read an endpoint's URL. Raises EndpointError, its text fit for a user."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        _check_path(path, text, "a unix endpoint is unix:/absolute/path")
        return UnixEndpoint(path)
    if text.startswith("hybrid-vsock:"):
        path, _, digits = text.removeprefix("hybrid-vsock:").rpartition(":")
        hybrid = HybridVsockEndpoint(path, _port(digits, text, VMADDR_CID_ANY - 1))
        _check_path(hybrid.listening_path, text, "a hybrid vsock endpoint is hybrid-vsock:/absolute/path:port")
        return hybrid
    scheme, separator, rest = text.partition("://")
    host, colon, port = rest.rpartition(":")
    if scheme in ("tcp", "vsock") and not (separator and colon and host):
        raise EndpointError(f"{text!r}: expected {scheme}://{'host' if scheme == 'tcp' else 'cid'}:port")
    if scheme == "tcp":
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host or "/" in host or "@" in host:
            raise EndpointError(f"{text!r}: expected tcp://host:port (an IPv6 address in brackets)")
        return TcpEndpoint(host, _port(port, text, 65535))
    if scheme == "vsock":
        if host.lower() == "any":
            cid = VMADDR_CID_ANY
        elif host.isascii() and host.isdigit() and len(host) <= 10 and int(host) < VMADDR_CID_ANY:
            cid = int(host)
        else:
            raise EndpointError(f"{text!r}: {host!r} is neither a CID nor 'any'")
        return VsockEndpoint(cid, _port(port, text, VMADDR_CID_ANY - 1))
    raise EndpointError(
        f"{text!r}: not an endpoint (unix:/path, tcp://host:port, vsock://cid:port or hybrid-vsock:/path:port)"
    )


def runtime_directory() -> Path:
    """Where the sockets go unless configured: systemd's RuntimeDirectory, /run/vgpu for root, else the user's own."""
    given = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if given:
        return Path(given)
    if os.geteuid() == 0:
        return Path("/run/vgpu")
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "vgpu" if base else Path(f"/tmp/vgpu-{os.geteuid()}")  # noqa: S108  open_listener checks who owns it


def default_endpoint() -> UnixEndpoint:
    """Where vgpud listens, and `vgpu` looks for it, unless told otherwise."""
    return UnixEndpoint(str(runtime_directory() / "vgpud.sock"))


def create_socket(endpoint: Endpoint) -> socket.socket:
    """A stream socket of the endpoint's family, not connected. Raises EndpointError if the kernel has none."""
    match endpoint:
        case UnixEndpoint() | HybridVsockEndpoint():
            return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        case TcpEndpoint(host=host):
            return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        case VsockEndpoint():
            if not hasattr(socket, "AF_VSOCK"):
                raise EndpointError(f"{endpoint}: this Python was built without vsock")
            try:
                return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
            except OSError as error:
                raise EndpointError(f"{endpoint}: this kernel has no vsock ({error.strerror})") from error


def socket_address(endpoint: Endpoint) -> str | tuple[str, int] | tuple[int, int]:
    """The address to bind or connect, as Python's socket module wants it."""
    match endpoint:
        case UnixEndpoint(path=path) | HybridVsockEndpoint(path=path):
            return path
        case TcpEndpoint(host=host, port=port):
            return (host, port)
        case VsockEndpoint(cid=cid, port=port):
            return (cid, port)


def connect(endpoint: Endpoint, *, timeout_s: float) -> socket.socket:
    """A connected stream socket with that timeout. Raises OSError or EndpointError."""
    sock = create_socket(endpoint)
    try:
        sock.settimeout(timeout_s)
        sock.connect(socket_address(endpoint))
        if isinstance(endpoint, TcpEndpoint):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        elif isinstance(endpoint, HybridVsockEndpoint):
            _ask_for_port(sock, endpoint.port)
    except BaseException:
        sock.close()
        raise
    return sock


def _ask_for_port(sock: socket.socket, port: int) -> None:
    """The VMM's answer is `OK` and a port of its own; it hangs up when nobody listens in the guest."""
    sock.sendall(f"CONNECT {port}\n".encode())
    answer = b""
    while not answer.endswith(b"\n"):
        byte = sock.recv(1)  # no further than the line: what follows is the stream's
        if not byte:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"the VM refused port {port}")
        answer += byte
        if len(answer) > _HYBRID_ANSWER_NBYTES:
            break
    if not answer.startswith(b"OK ") or not answer.endswith(b"\n"):
        raise ConnectionError(errno.EPROTO, f"no hybrid vsock answers there: {answer!r}")
