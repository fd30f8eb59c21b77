"""Sockets that systemd has opened for us (sd_listen_fds(3)), by the address that each is bound to.

The variables are removed from the environment, so that no worker takes them for its own.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from vgpud.endpoint import Endpoint, TcpEndpoint, UnixEndpoint

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_FIRST_FD = 3
_COUNT_CAP = 64


def take_sockets(environment: MutableMapping[str, str] = os.environ) -> list[socket.socket]:
    """The listening stream sockets that were passed to this very process; none if systemd passed none."""
    pid, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdecimal() or int(count) > _COUNT_CAP:
        return []
    found = []
    for fd in range(_FIRST_FD, _FIRST_FD + int(count)):
        os.set_inheritable(fd, False)
        sock = socket.socket(fileno=fd)
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and sock.type == socket.SOCK_STREAM:
            sock.setblocking(False)
            found.append(sock)
        else:
            sock.close()
    return found


def matching(sockets: list[socket.socket], endpoint: Endpoint) -> socket.socket | None:
    """The socket that is bound to an endpoint's address, removed from the list."""
    for sock in sockets:
        name = sock.getsockname()
        is_unix = sock.family == socket.AF_UNIX and isinstance(endpoint, UnixEndpoint) and name == endpoint.path
        is_tcp = (
            isinstance(endpoint, TcpEndpoint) and isinstance(name, tuple) and name[:2] == (endpoint.host, endpoint.port)
        )
        if is_unix or is_tcp:
            sockets.remove(sock)
            return sock
    return None
