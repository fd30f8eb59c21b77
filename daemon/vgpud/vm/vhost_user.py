"""The vhost-user front: what the VMM says about memory and rings, one bounded message at a time.

Source: QEMU's docs/interop/vhost-user.rst. Offered: virtio 1, REPLY_ACK and CONFIG; no indirect descriptors, no event
index, no live migration, so the messages that belong to those are refused.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from enum import IntEnum
from typing import TYPE_CHECKING

from .guest_memory import REGIONS_MAX, GuestMemory, map_table
from .violation import Violation
from .vring import Addresses, Vring

if TYPE_CHECKING:
    from collections.abc import Callable

    from .mux import Mux

_HEADER = struct.Struct("<III")  # request, flags, bytes that follow
_PAYLOAD_MAX = 512
_VERSION, _VERSION_MASK, _REPLY, _NEED_REPLY = 1, 3, 4, 8
_F_VERSION_1, _F_PROTOCOL_FEATURES = 1 << 32, 1 << 30
_FEATURES = _F_VERSION_1 | _F_PROTOCOL_FEATURES
_PROTOCOL_FEATURES = 1 << 3 | 1 << 9  # REPLY_ACK, CONFIG
_CONFIG_NBYTES = 8  # struct virtio_vsock_config: the guest's CID
_U64, _STATE, _CONFIG = struct.Struct("<Q"), struct.Struct("<II"), struct.Struct("<III")
_ADDRESSES = struct.Struct("<IIQQQQ")  # ring, flags, descriptors, used, available, log
_FD_ABSENT = 1 << 8


class Request(IntEnum):
    """VHOST_USER_*, those we answer."""

    GET_FEATURES = 1
    SET_FEATURES = 2
    SET_OWNER = 3
    RESET_OWNER = 4
    SET_MEM_TABLE = 5
    SET_VRING_NUM = 8
    SET_VRING_ADDR = 9
    SET_VRING_BASE = 10
    GET_VRING_BASE = 11
    SET_VRING_KICK = 12
    SET_VRING_CALL = 13
    SET_VRING_ERR = 14
    GET_PROTOCOL_FEATURES = 15
    SET_PROTOCOL_FEATURES = 16
    SET_VRING_ENABLE = 18
    GET_CONFIG = 24


class Front:
    """One VMM's connection. `sock` is non-blocking; `kick_changed(ring, old, new)` gets the descriptors to watch."""

    def __init__(
        self, sock: socket.socket, mux: Mux, kick_changed: Callable[[int, int | None, int | None], None]
    ) -> None:
        self.sock = sock
        self._mux = mux
        self._kick_changed = kick_changed
        self._data = bytearray()
        self._fds: list[int] = []
        self._memory: GuestMemory | None = None
        self._bases: dict[int, int] = {}  # what GET_VRING_BASE answered

    def read(self) -> bool:
        """Take what has arrived. False: the VMM has hung up. Raises Violation."""
        while True:
            head = len(self._data) < _HEADER.size
            wanted = _HEADER.size if head else _HEADER.size + self._payload_nbytes()
            if len(self._data) < wanted:
                try:
                    if not self._receive(wanted - len(self._data)):
                        return False
                except BlockingIOError:
                    return True
                continue
            if head:
                continue
            request, flags, _ = _HEADER.unpack_from(self._data)
            payload = bytes(self._data[_HEADER.size :])
            fds, self._fds = self._fds, []
            self._data.clear()
            try:
                self._handle(request, flags, payload, fds)
            finally:
                for fd in fds:
                    os.close(fd)

    def close(self) -> None:
        """Close the connection and release rings and memory."""
        for index, ring in enumerate(self._mux.rings):
            self._set_kick(index, ring, None)
            self._set_call(ring, None)
            ring.place(None, None)
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()
        self._memory = None
        self.sock.close()

    def _payload_nbytes(self) -> int:
        nbytes: int = _HEADER.unpack_from(self._data)[2]
        if nbytes > _PAYLOAD_MAX:
            raise Violation(f"a vhost-user message of {nbytes} bytes")
        return nbytes

    def _receive(self, nbytes: int) -> bool:
        data, fds, flags, _ = socket.recv_fds(self.sock, nbytes, REGIONS_MAX, socket.MSG_CMSG_CLOEXEC)
        self._fds += fds
        if flags & socket.MSG_CTRUNC or len(self._fds) > REGIONS_MAX:
            raise Violation("too many descriptors with a vhost-user message")
        self._data += data
        return bool(data)

    def _reply(self, request: int, payload: bytes) -> None:
        message = _HEADER.pack(request, _VERSION | _REPLY, len(payload)) + payload
        try:
            sent = self.sock.send(message)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the VMM has hung up, which the next read reports
        if sent != len(message):
            raise Violation("the VMM does not read its answers")

    def _handle(self, number: int, flags: int, payload: bytes, fds: list[int]) -> None:
        if flags & _VERSION_MASK != _VERSION or flags & _REPLY:
            raise Violation(f"a vhost-user message with flags {flags:#x}")
        try:
            request = Request(number)
        except ValueError:
            raise Violation(f"vhost-user request {number}, which was not offered") from None
        try:
            answer = self._apply(request, payload, fds)
        except struct.error:
            raise Violation(f"{request.name} of {len(payload)} bytes") from None
        if answer is not None:
            self._reply(number, answer)
        elif flags & _NEED_REPLY:
            self._reply(number, _U64.pack(0))

    def _apply(self, request: Request, payload: bytes, fds: list[int]) -> bytes | None:
        """Execute a request. Returns the answer, if it has one. Descriptors that are kept are removed from `fds`."""
        match request:
            case Request.GET_FEATURES:
                return _U64.pack(_FEATURES)
            case Request.GET_PROTOCOL_FEATURES:
                return _U64.pack(_PROTOCOL_FEATURES)
            case Request.SET_FEATURES:
                self._accept_features(payload, _FEATURES)
            case Request.SET_PROTOCOL_FEATURES:
                self._accept_features(payload, _PROTOCOL_FEATURES)
            case Request.SET_OWNER | Request.SET_VRING_ERR:
                pass
            case Request.RESET_OWNER:
                self._mux.drop_streams()
            case Request.SET_MEM_TABLE:
                self._memory = map_table(payload, fds)
                for ring in self._mux.rings:
                    ring.place(self._memory, ring.addresses)
            case Request.SET_VRING_NUM:
                index, size = _STATE.unpack(payload)
                self._ring(index).set_size(size)
            case Request.SET_VRING_ADDR:
                index, ring_flags, descriptors, used, available, _log = _ADDRESSES.unpack(payload)
                if ring_flags:
                    raise Violation("a log of writes, which was not offered")
                self._ring(index).place(self._memory, Addresses(descriptors, used, available))
            case Request.SET_VRING_BASE:
                self._set_base(*_STATE.unpack(payload))
            case Request.GET_VRING_BASE:
                index, _ = _STATE.unpack(payload)
                ring = self._ring(index)
                self._set_kick(index, ring, None)  # which stops the ring
                self._bases[index] = ring.taken
                return _STATE.pack(index, ring.taken)
            case Request.SET_VRING_ENABLE:
                index, enabled = _STATE.unpack(payload)
                self._ring(index).enabled = bool(enabled)
            case Request.SET_VRING_KICK:
                index, ring, fd = self._event(payload, fds)
                if fd is None:
                    raise Violation("a ring without kicks, to be polled")
                self._set_kick(index, ring, fd)
            case Request.SET_VRING_CALL:
                _, ring, fd = self._event(payload, fds)
                self._set_call(ring, fd)
            case Request.GET_CONFIG:
                return self._config(payload)
        return None

    @staticmethod
    def _accept_features(payload: bytes, offered: int) -> None:
        (features,) = _U64.unpack(payload)
        if features & ~offered:
            raise Violation(f"features {features & ~offered:#x}, which were not offered")

    def _ring(self, index: int) -> Vring:
        if index >= len(self._mux.rings):
            raise Violation(f"ring {index} of a vsock device")
        return self._mux.rings[index]

    def _set_base(self, index: int, base: int) -> None:
        """Set the position at which the ring continues. A guest that was paused, not reset, keeps the old one."""
        ring = self._ring(index)
        if ring.running:
            raise Violation("a running ring is moved")
        if base > 0xFFFF:
            raise Violation(f"a ring that goes on at {base}")
        if index < 2 and index in self._bases and base != self._bases[index]:
            self._mux.drop_streams()  # the guest was reset and has forgotten its streams
        elif index < 2 and index not in self._bases and base:
            self._mux.reset_due = True  # the guest ran with an earlier device process
        ring.taken = base

    def _event(self, payload: bytes, fds: list[int]) -> tuple[int, Vring, int | None]:
        """The ring and the eventfd, taken out of `fds`, that a SET_VRING_KICK or _CALL names."""
        (value,) = _U64.unpack(payload)
        index = value & 0xFF
        ring = self._ring(index)
        if value & _FD_ABSENT:
            return index, ring, None
        if len(fds) != 1:
            raise Violation(f"{len(fds)} descriptors for an event")
        # Another kind of file could block this process, or never become readable.
        if not os.readlink(f"/proc/self/fd/{fds[0]}").startswith("anon_inode:[eventfd"):
            raise Violation("an event that is not an eventfd")
        fd = fds.pop()
        os.set_blocking(fd, False)
        return index, ring, fd

    def _set_kick(self, index: int, ring: Vring, fd: int | None) -> None:
        old, ring.kick_fd = ring.kick_fd, fd
        self._kick_changed(index, old, fd)
        if old is not None:
            os.close(old)

    @staticmethod
    def _set_call(ring: Vring, fd: int | None) -> None:
        old, ring.call_fd = ring.call_fd, fd
        if old is not None:
            with contextlib.suppress(OSError):
                os.close(old)

    def _config(self, payload: bytes) -> bytes:
        """The configuration space that the guest's driver reads: its CID. Out of range: an empty answer, which is
        vhost-user's error."""
        if len(payload) < _CONFIG.size:
            raise Violation("GET_CONFIG without a head")
        offset, nbytes, _flags = _CONFIG.unpack_from(payload)
        if offset + nbytes > _CONFIG_NBYTES or len(payload) != _CONFIG.size + nbytes:
            return b""
        return payload[: _CONFIG.size] + _U64.pack(self._mux.cid)[offset : offset + nbytes]
