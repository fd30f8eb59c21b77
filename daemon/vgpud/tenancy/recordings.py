"""Recordings of sessions (vgpud.toml, [recording]): a file for each, in a folder of its tenant, for vgpud's user alone.

A file begins with MAGIC, the length of a JSON document as 32 bits, and the document, padded to a multiple of 8 bytes;
the worker appends what it receives and answers (executor/vgx_recording.h).
"""

from __future__ import annotations

import json
import os
import struct
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from vgpud import __version__
from vgpud.proto.message import FEATURES_OF_SHARED_MEMORY, REGION

if TYPE_CHECKING:
    from pathlib import Path

    from vgpud.config import Config

    from .session import Session

MAGIC = b"VGPUREC1"
# With these features contents travel in shared memory, or stay on the host.
_INCOMPLETE = {*FEATURES_OF_SHARED_MEMORY, REGION, "images"}


class Recording:
    """Owns the descriptor of a session's file; close() closes it."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    def fileno(self) -> int:
        """The descriptor, which stays this object's."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


def open_recording(session: Session, config: Config, about: dict[str, Any]) -> Recording | None:
    """Create the file of a session whose tenant's sessions are recorded; None for others, and for one that was welcomed
    before its tenant's were. `about`: what a replay must know. Raises OSError."""
    base = config.recording_path
    if base is None or not config.records(session.tenant_name) or _INCOMPLETE & set(about["features"]):
        return None
    folder = base / quote(session.tenant_name, safe="")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for each in (base, folder):
        each.chmod(0o700)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = folder / f"{stamp}-{session.epoch:x}-{session.number}.vgpurec"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    known = {"vgpu": __version__, "tenant": session.tenant_name, "program": session.client.comm, "epoch": session.epoch}
    document = json.dumps(known | about).encode()
    document += b" " * (-(len(MAGIC) + 4 + len(document)) % 8)
    os.write(fd, MAGIC + struct.pack("<I", len(document)) + document)
    return Recording(path, fd)
