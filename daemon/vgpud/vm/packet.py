"""virtio-vsock packets. Source: virtio 1.2, ch. 5.10."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

HOST_CID = 2
STREAM = 1  # the packet's type: a byte stream
RECEIVE, SEND = 1, 2  # flags of SHUTDOWN: its sender will not receive, or not send, any more
PAYLOAD_NBYTES = 64 * 1024  # as Linux limits it
TRANSPORT_RESET = (0).to_bytes(4, "little")  # the only defined event

HEADER = struct.Struct("<QQIIIHHIII")
HEADER_NBYTES = HEADER.size
U32 = 0xFFFFFFFF


class Op(IntEnum):
    """What a packet does."""

    REQUEST = 1
    RESPONSE = 2
    RST = 3
    SHUTDOWN = 4
    RW = 5
    CREDIT_UPDATE = 6
    CREDIT_REQUEST = 7


class Header(NamedTuple):
    """A packet's first 44 bytes."""

    source_cid: int
    target_cid: int
    source_port: int
    target_port: int
    nbytes: int
    type: int
    op: int
    flags: int
    buf_alloc: int
    fwd_cnt: int
