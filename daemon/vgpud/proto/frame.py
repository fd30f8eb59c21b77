"""Frames: u32 length, then one msgpack map (protocol/wire.md, Control phase)."""

from __future__ import annotations

import struct

from .error import LocalProtocolError, RemoteProtocolError
from .packing import Map, pack_map, unpack_map

MAGIC = b"VGPU"
HEADER_NBYTES = 4
CLIENT_FRAME_NBYTES = 64 * 1024
HOST_FRAME_NBYTES = 4 * 1024 * 1024


def encode_frame(fields: Map, *, cap_nbytes: int) -> bytes:
    """One frame on the wire, header included. Raises LocalProtocolError when it is over the sender's cap."""
    body = pack_map(fields)
    if len(body) > cap_nbytes:
        raise LocalProtocolError(f"frame of {len(body)} bytes is over the cap of {cap_nbytes}")
    return struct.pack("<I", len(body)) + body


def decode_body(body: bytes) -> Map:
    """The map in one frame's body. Raises RemoteProtocolError unless the body is exactly one map."""
    try:
        return unpack_map(body)
    except ValueError as error:
        raise RemoteProtocolError(f"frame is {error}") from error


class FrameReader:
    """Assembles magic and frames from a stream, and limits how many bytes may be read next.

    It never asks for bytes beyond the current frame: what follows an attach frame belongs to the worker.
    """

    def __init__(self, *, cap_nbytes: int, expect_magic: bool) -> None:
        self._cap_nbytes = cap_nbytes
        self._buffer = bytearray()
        self._part = "magic" if expect_magic else "header"
        self._target_nbytes = len(MAGIC) if expect_magic else HEADER_NBYTES

    @property
    def nbytes_wanted(self) -> int:
        """How many bytes the next receive() may bring, at least 1."""
        return self._target_nbytes - len(self._buffer)

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun but not ended."""
        return self._part == "body" or bool(self._buffer)

    def receive(self, data: bytes) -> Map | None:
        """Take 1 to nbytes_wanted bytes; return the map when they complete a frame."""
        if not 0 < len(data) <= self.nbytes_wanted:
            raise LocalProtocolError(f"{len(data)} bytes given where 1 to {self.nbytes_wanted} were wanted")
        self._buffer += data
        if self._part == "magic" and not MAGIC.startswith(self._buffer):
            raise RemoteProtocolError("wrong magic", speaks_vgpu=False)
        if len(self._buffer) < self._target_nbytes:
            return None
        whole = bytes(self._buffer)
        self._buffer.clear()
        if self._part == "magic":
            self._part = "header"
            self._target_nbytes = HEADER_NBYTES
            return None
        if self._part == "header":
            (nbytes,) = struct.unpack("<I", whole)
            if not 0 < nbytes <= self._cap_nbytes:
                raise RemoteProtocolError(f"frame of {nbytes} bytes, allowed are 1 to {self._cap_nbytes}")
            self._part = "body"
            self._target_nbytes = nbytes
            return None
        self._part = "header"
        self._target_nbytes = HEADER_NBYTES
        return decode_body(whole)
