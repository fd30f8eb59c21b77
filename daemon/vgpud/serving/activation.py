"""Sockets that systemd has opened for us (sd_listen_fds(3)), by the address that each is bound to.

The variables are removed from the environment, so that no worker takes them for its own.
"""

from __future__ import annotations

import os
import re
import socket
from typing import TYPE_CHECKING

from vgpud.endpoint import Endpoint, TcpEndpoint, UnixEndpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

FIRST_FD = 3
KEPT = "vgpud-"  # prefix of the names under which an earlier vgpud stored descriptors with the manager (fd_store.py)
KEPT_NAME = re.compile(f"{KEPT}(state-)?[0-9]{{1,18}}")
_COUNT_CAP = 65536


def passed_names(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The names of the descriptors that were passed to this very process, from FIRST_FD on."""
    pid, count = environment.get("LISTEN_PID", ""), environment.get("LISTEN_FDS", "")
    if pid != str(os.getpid()) or not count.isdecimal() or int(count) > _COUNT_CAP:
        return []
    names = environment.get("LISTEN_FDNAMES", "").split(":")
    return (names + [""] * int(count))[: int(count)]


def take_sockets(environment: MutableMapping[str, str] = os.environ) -> list[socket.socket]:
    """The listening stream sockets that were passed to this very process; none if systemd passed none."""
    names = passed_names(environment)
    for variable in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        environment.pop(variable, None)
    found = []
    for fd in (FIRST_FD + i for i, name in enumerate(names) if not KEPT_NAME.fullmatch(name)):
        os.set_inheritable(fd, False)
        try:
            sock = socket.socket(fileno=fd)
        except OSError:  # not a socket
            os.close(fd)
            continue
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
