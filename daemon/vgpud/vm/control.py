"""What a VM's device and vgpud say to each other: msgpack maps, one per SOCK_SEQPACKET packet.

From the device: {type: "hello", version, name, cid, port}, first; {type: "stream"} with one descriptor, our end of a
guest's new stream; {type: "vm", connected: bool}; {type: "log", level, event, ...}. From vgpud: {type: "exit"}.
"""

from __future__ import annotations

from pathlib import Path

VERSION = 1
PACKET_NBYTES = 4096


def control_path(vsock: str) -> Path:
    """Where the device behind a vhost-user socket can be found again by a vgpud that was started after it."""
    return Path(f"{vsock}.control")
