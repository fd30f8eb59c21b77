"""The owner of images and shared memory: a tenant is a peer with one token, in one pid namespace. The kernel cannot
distinguish more.
"""

from __future__ import annotations

import contextlib
import os
import select
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .peer import open_peer_pidfd

if TYPE_CHECKING:
    import socket

    from vgpud.serving.succession import Incoming, Outgoing

    from .peer import Peer


@dataclass(frozen=True, slots=True)
class Tenant:
    """Connections with equal tenants may share images and memory. `pid_namespace` is None for the host's own."""

    peer: str
    token: str | None
    pid_namespace: int | None = None


@dataclass(frozen=True, slots=True)
class Identified:
    """A tenant, and a descriptor that keeps its name from being reused; close it. `is_lasting`: the name is never
    reused. A CID without a name in the configuration may be reused by the next VM, which can be told apart only by the
    end of all connections of the first one.
    """

    tenant: Tenant
    namespace_fd: int | None = None
    is_lasting: bool = True

    def copy(self) -> Identified:
        """A copy, which must be closed separately."""
        namespace_fd = None if self.namespace_fd is None else os.dup(self.namespace_fd)
        return Identified(self.tenant, namespace_fd, self.is_lasting)

    def dump(self, outgoing: Outgoing) -> dict[str, Any]:
        """For restore(), in the vgpud that follows."""
        fd = None if self.namespace_fd is None else outgoing.add(self.namespace_fd)
        return {"tenant": list(astuple(self.tenant)), "namespace_fd": fd, "is_lasting": self.is_lasting}

    @classmethod
    def restore(cls, fields: dict[str, Any], incoming: Incoming) -> Identified:
        """Restore the tenant that dump() described."""
        fd = None if fields["namespace_fd"] is None else incoming.take(fields["namespace_fd"])
        return cls(Tenant(*fields["tenant"]), fd, fields["is_lasting"])

    def close(self) -> None:
        """Release the name."""
        if self.namespace_fd is not None:
            os.close(self.namespace_fd)


def identify_tenant(sock: socket.socket, peer: Peer, token_name: str | None) -> Identified | None:
    """The tenant behind a connection; None when it cannot be distinguished from others.

    A TCP address alone is not enough: every user of a machine has it. For a unix peer in a container the
    user is not enough, as root of two containers is one user; the pid namespace distinguishes them if it is readable.
    """
    if peer.kind == "tcp":
        return None if token_name is None else Identified(Tenant(peer.key, token_name))
    if peer.kind != "unix":
        return Identified(Tenant(peer.key, token_name), is_lasting=peer.vm is not None or token_name is not None)
    pidfd = open_peer_pidfd(sock, peer)
    if pidfd is None:
        return None
    namespace_fd: int | None = None
    try:
        if not _is_in_our_pid_namespace(peer.pid):
            namespace_fd = os.open(f"/proc/{peer.pid}/ns/pid", os.O_RDONLY)
        death = select.poll()  # not select(), which knows no descriptor above 1023
        death.register(pidfd, select.POLLIN)
        if death.poll(0):
            raise ProcessLookupError  # it has died, so what was read may belong to another process with its pid
    except OSError:
        if namespace_fd is not None:
            os.close(namespace_fd)
        return None
    finally:
        os.close(pidfd)
    if namespace_fd is None:
        return Identified(Tenant(peer.key, token_name))
    return Identified(Tenant(peer.key, token_name, os.fstat(namespace_fd).st_ino), namespace_fd)


def _is_in_our_pid_namespace(pid: int | None) -> bool:
    """Raises OSError when the process cannot be looked at."""
    with contextlib.suppress(StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        pids = next(line for line in lines if line.startswith("NSpid:")).split()[1:]
        return len(pids) == 1
    raise FileNotFoundError("NSpid")
