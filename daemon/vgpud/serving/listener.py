"""Sockets that vgpud listens on, with the right owner and mode. A socket without a listener is replaced, one with a
listener is left alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import grp
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpud.endpoint import Endpoint, HybridVsockEndpoint, TcpEndpoint, UnixEndpoint, bound_socket, parse_endpoint

if TYPE_CHECKING:
    from .succession import Incoming, Outgoing

_BACKLOG = 512


class ListenError(Exception):
    """An endpoint cannot be listened on; the text is one line for the operator."""


class AlreadyRunningError(ListenError):
    """Another vgpud serves the endpoint."""


@dataclass(slots=True)
class Listener:
    """A listening, non-blocking socket; `endpoint` has the port that the kernel chose if port 0 was requested."""

    sock: socket.socket
    endpoint: Endpoint
    lock_fd: int | None = None
    path: str | None = None  # of the socket file

    def dump(self, outgoing: Outgoing) -> dict[str, Any]:
        """For restore() in the next vgpud: clients wait in the socket's queue meanwhile."""
        lock = None if self.lock_fd is None else outgoing.add(self.lock_fd)
        return {"sock": outgoing.add(self.sock.fileno()), "lock": lock, "path": self.path}

    @classmethod
    def restore(cls, fields: dict[str, Any], endpoint: str, incoming: Incoming) -> Listener:
        """Restore the listener that dump() described."""
        sock = socket.socket(fileno=incoming.take(fields["sock"]))
        lock_fd = None if fields["lock"] is None else incoming.take(fields["lock"])
        return cls(sock, parse_endpoint(endpoint, listening=True), lock_fd, fields["path"])

    @property
    def is_reachable(self) -> bool:
        """False: the socket file has been removed, as systemd does below RuntimeDirectory= when a service crashes."""
        return self.path is None or Path(self.path).exists()

    @property
    def _mark(self) -> Path | None:
        return Path(f"{self.endpoint.path}.restarting") if isinstance(self.endpoint, UnixEndpoint) else None

    def mark_restart(self) -> None:
        """Tell clients that connect during the restart to wait (shim/connect/vgs_hello.c)."""
        if self._mark is not None:
            with contextlib.suppress(OSError):
                self._mark.touch(mode=0o644)

    def unmark_restart(self) -> None:
        """Remove the mark: the restart is over."""
        if self._mark is not None:
            with contextlib.suppress(OSError):
                self._mark.unlink(missing_ok=True)

    def close(self) -> None:
        """Stop listening and remove the socket file. The lock file stays: removing it would race with a successor."""
        if self.path is not None:
            Path(self.path).unlink(missing_ok=True)
        self.sock.close()
        if self.lock_fd is not None:
            os.close(self.lock_fd)
            self.lock_fd = None


def adopt_listener(sock: socket.socket, endpoint: Endpoint) -> Listener:
    """A socket that systemd listens on: its file and mode are systemd's, and stay when vgpud ends."""
    sock.listen(_BACKLOG)  # calling listen() again makes vgpud the peer that clients see, instead of systemd
    return Listener(sock, endpoint)


def open_listener(endpoint: Endpoint, *, mode: int = 0o600, group: str | None = None) -> Listener:
    """Listen. Raises ListenError or EndpointError."""
    try:
        if isinstance(endpoint, UnixEndpoint):
            return _open_unix(endpoint, endpoint.path, mode, group)
        if isinstance(endpoint, HybridVsockEndpoint):
            # Every peer that connects there counts as the VM, so the socket must not be open to everybody.
            return _open_unix(endpoint, endpoint.listening_path, mode & 0o660, group)
        return _open_port(endpoint)
    except OSError as error:
        raise ListenError(f"cannot listen on {endpoint}: {error.strerror or error}") from error


def _open_port(endpoint: Endpoint) -> Listener:
    sock = bound_socket(endpoint)
    try:
        sock.listen(_BACKLOG)
        sock.setblocking(False)
        if isinstance(endpoint, TcpEndpoint):
            endpoint = TcpEndpoint(endpoint.host, sock.getsockname()[1])
    except BaseException:
        sock.close()
        raise
    return Listener(sock, endpoint)


def _open_unix(endpoint: UnixEndpoint | HybridVsockEndpoint, where: str, mode: int, group: str | None) -> Listener:
    path = Path(where)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    owner = path.parent.stat().st_uid
    # A folder's owner can replace the socket. (A VMM's folder belongs to the user who controls the VM anyway.)
    if isinstance(endpoint, UnixEndpoint) and owner not in (0, os.geteuid()):
        raise ListenError(f"cannot listen on {endpoint}: the directory belongs to uid {owner}")
    lock_fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(f"another vgpud is serving {endpoint}") from None
        _remove_stale(endpoint, where)
        mask = os.umask(0o177)  # no client can connect between bind and chmod
        try:
            sock.bind(where)
        finally:
            os.umask(mask)
        if group is not None:
            os.chown(path, -1, _group_id(group))
        os.chmod(path, mode)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        os.close(lock_fd)
        raise
    return Listener(sock, endpoint, lock_fd, where)


def _group_id(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ListenError(f"socket.group: there is no group {name!r}") from None


def _remove_stale(endpoint: Endpoint, path: str) -> None:
    """Unlink a socket without a listener. Something else in its place, or a listener, is left alone and reported."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise ListenError(f"cannot listen on {endpoint}: something that is not a socket is there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError:
            pass  # a full backlog or a slow server: the socket is in use
    raise AlreadyRunningError(f"another server answers on {endpoint}")
