"""The peer's identity, as the kernel reports it, never as the client claims (wire.md: hello's `client` is for the log
only)."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vgpud.endpoint import Endpoint, HybridVsockEndpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vgpud.config_tables import VmConfig

_SO_PEERPIDFD = 77  # Linux 6.5: a pidfd of the peer as it was at connect(), free of pid reuse


@dataclass(frozen=True, slots=True)
class Peer:
    """A client's identity. `key` is what per-client limits count by."""

    kind: str  # "unix", "vsock" or "tcp"
    uid: int | None = None
    pid: int | None = None
    cid: int | None = None
    host: str | None = None
    vm: str | None = None  # its name in the configuration

    @property
    def key(self) -> str:
        """Who it is, as text."""
        match self.kind:
            case "unix":
                return f"uid:{self.uid}"
            case "vsock":
                return f"cid:{self.cid}" if self.vm is None else f"vm:{self.vm}"
            case _:
                return f"host:{self.host}"

    def fields(self) -> dict[str, str | int]:
        """What is known, for the log and the worker."""
        known = {"kind": self.kind, "uid": self.uid, "pid": self.pid, "cid": self.cid, "host": self.host}
        known["vm"] = self.vm
        return {key: value for key, value in known.items() if value is not None}


def identify(
    sock: socket.socket, address: object, endpoint: Endpoint | None = None, vms: Sequence[VmConfig] = ()
) -> Peer:
    """The peer of a socket accepted on `endpoint`; `address` is what accept() returned. Raises OSError when it is gone.

    A VM has the name it is configured with. Behind a hybrid vsock socket is its VM: what connects there is the VMM.
    """
    if isinstance(endpoint, HybridVsockEndpoint):
        found = [vm for vm in vms if vm.hybrid == endpoint.path]
        return Peer("vsock", cid=found[0].cid, vm=found[0].name) if found else Peer("vsock", vm=endpoint.path)
    if sock.family == socket.AF_UNIX:
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _gid = struct.unpack("3i", credentials)
        # pid is 0 when the client is in a pid namespace that vgpud cannot see
        return Peer("unix", uid=uid, pid=pid or None)
    if sock.family == getattr(socket, "AF_VSOCK", None) and isinstance(address, tuple):
        cid = int(address[0])
        return Peer("vsock", cid=cid, vm=next((vm.name for vm in vms if vm.cid == cid), None))
    host = str(address[0]) if isinstance(address, tuple) else "unknown"
    return Peer("tcp", host=host)


def open_peer_pidfd(sock: socket.socket, peer: Peer) -> int | None:
    """A pidfd that becomes readable when a unix peer dies; None when the kernel cannot tell. The caller closes it."""
    if peer.kind != "unix" or peer.pid is None:
        return None
    try:
        return sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        pass
    try:
        return os.pidfd_open(peer.pid)
    except OSError:
        return None  # gone already (the worker will read end of file) or not visible to us
