"""The worker's end of its control socket (see vgpud/supervision/worker_process.py for the messages)."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass, field
from typing import Any

from ..cudaerror import CudaError
from ..proto.frame import HOST_FRAME_NBYTES, encode_frame
from ..proto.message import Attached, Refused
from ..proto.packing import pack_map, unpack_map

_PACKET_NBYTES = 192 * 1024
_SEND_TIMEOUT_S = 5.0
_FDS_MAX = 9  # of an assignment


NO_LIMIT = 2**64 - 1


@dataclass(frozen=True, slots=True)
class WarmOrder:
    """The message to a worker that creates a context before its client is known."""

    device: int
    backend: str
    gpus: str
    inventory: dict[str, Any]
    libcuda: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """The assignment of a session: its parameters, and the client's socket, which only the worker holds now."""

    client_fd: int
    session: int
    epoch: int
    backend: str
    gpus: str  # as in the configuration: profiles and counts
    host_seed: str
    devices: list[dict[str, Any]]  # {index, name} of each device the client sees; the index is the host's
    inventory: dict[str, Any]  # wire.md's INVENTORY
    libcuda: str
    cache_dir: str  # a path: below /proc/self/fd if its descriptor came with the assignment
    limits: dict[str, int]  # names and values: handover.py
    features: list[str]  # as agreed in welcome
    peer: dict[str, Any]  # for the log
    share: str | None = None  # the [[shares]] of its tenant
    quotas: dict[str, int] = field(default_factory=dict)  # ShareConfig.quotas
    denied: list[str] = field(default_factory=list)  # groups of functions, ShareConfig.deny
    desks: list[str] = field(default_factory=list)  # names of the descriptors that came with it, for the *_fd fields
    images_fd: int = -1  # socket to the host's cache of images
    ipc_fd: int = -1  # socket about memory and events shared with other clients of the tenant
    ledger_fd: int = -1  # the ledger of all sessions' memory (devices/ledger.py)
    ledger_row: int = 0  # the session's row of the ledger
    memory_limit_nbytes: int = NO_LIMIT  # of each device, for all sessions of the tenant together
    cache_fd: int = -1  # the tenant's cache
    turns_fd: int = -1  # by which tenants share cards (vgpud/tenancy/turns.py)
    turns_tenant: int = 0  # the tenant's number there; the session's is `ledger_row`
    meter_fd: int = -1  # where the worker counts calls (vgpud/tenancy/meter.py)
    recording_fd: int = -1  # the pipe to the session's recording (vgpud/tenancy/recordings.py)
    region_fd: int = -1  # memory shared with the client's machine
    region: tuple[int, int] | None = None  # the session's range of it: offset and bytes


class Control:
    """The socketpair to vgpud. Its end of file is the order to exit."""

    def __init__(self, fd: int) -> None:
        self._sock = socket.socket(fileno=fd)

    def send(self, kind: str, **fields: object) -> None:
        """Send vgpud a message. If vgpud has gone, the watcher notices."""
        with contextlib.suppress(OSError):
            self._sock.send(pack_map({"type": kind} | fields))

    def send_listener(self, fd: int) -> None:
        """Send vgpud the listener for refused system calls of this process, before any other message."""
        with contextlib.suppress(OSError):
            socket.send_fds(self._sock, [pack_map({"type": "calls"})], [fd])
        os.close(fd)

    def receive_warm_order(self) -> WarmOrder | None:
        """Block until the order arrives; None when vgpud is gone."""
        packet = self._sock.recv(_PACKET_NBYTES)
        return WarmOrder(**unpack_map(packet)) if packet else None

    def receive_assignment(self) -> Assignment | None:
        """Block until a session is given; None when vgpud is gone instead."""
        packet, fds, _flags, _address = socket.recv_fds(self._sock, _PACKET_NBYTES, _FDS_MAX)
        if not packet:
            return None
        fields = unpack_map(packet)
        names = ["client_fd", *(f"{desk}_fd" for desk in fields.get("desks", ()))]
        if fields.get("region") is not None:
            names.append("region_fd")
        if len(fds) != len(names):
            raise RuntimeError(f"assignment came with {len(fds)} file descriptors instead of {len(names)}")
        for fd in fds:
            os.set_inheritable(fd, False)
        fields |= dict(zip(names, fds, strict=True))
        if "cache_fd" in fields:
            fields["cache_dir"] = f"/proc/self/fd/{fields['cache_fd']}"
        return Assignment(**fields)

    def fileno(self) -> int:
        """The socket's descriptor, which stays this object's."""
        return self._sock.fileno()


def send_attached(client_fd: int, session: int, region: tuple[int, int] | None = None) -> None:
    """Answer the client's attach: the command stream starts with the next byte. Raises OSError if the client left."""
    _send(client_fd, Attached(session, region))


def send_refused(client_fd: int, reason: str) -> None:
    """Answer the client's attach with a refusal: this worker cannot serve it. Raises OSError if the client is gone."""
    _send(client_fd, Refused(CudaError.OPERATING_SYSTEM, reason))


def _send(client_fd: int, message: Attached | Refused) -> None:
    with socket.socket(fileno=os.dup(client_fd)) as sock:
        sock.settimeout(_SEND_TIMEOUT_S)
        sock.sendall(encode_frame({"type": message.type} | message.fields(), cap_nbytes=HOST_FRAME_NBYTES))
        sock.settimeout(None)  # the flag is the file description's, which the executor shares
