"""The messages between a VM's device and vgpud: msgpack maps, one per SOCK_SEQPACKET packet.

From the device: {type: "hello", version, name, cid, port}, first; {type: "stream"} with one descriptor, vgpud's end of
a guest's new stream; {type: "vm", connected: bool}; {type: "log", level, event, ...}. From vgpud: {type: "exit"}.
"""

from __future__ import annotations

from pathlib import Path

VERSION = 1
PACKET_NBYTES = 4096


def control_path(vsock: str) -> Path:
    """The path at which a later vgpud finds the device behind a vhost-user socket again."""
    return Path(f"{vsock}.control")
