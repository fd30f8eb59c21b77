"""Recordings of sessions (vgpud.toml, [recording]): a file for each, in a folder of its tenant, for vgpud's user alone.

A file begins with MAGIC, the length of a JSON document as 32 bits, and the document, padded to a multiple of 8 bytes;
the worker appends what it receives and answers (executor/vgx_recording.h).
"""

from __future__ import annotations

import contextlib
import errno
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
    known = {"vgpu": __version__, "tenant": session.tenant_name, "program": session.client.comm, "epoch": session.epoch}
    document = json.dumps(known | about).encode()
    document += b" " * (-(len(MAGIC) + 4 + len(document)) % 8)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = base / quote(session.tenant_name, safe="") / f"{stamp}-{session.epoch:x}-{session.number}.vgpurec"
    return Recording(path, _create(path, MAGIC + struct.pack("<I", len(document)) + document))


def _create(path: Path, begin: bytes) -> int:
    """A descriptor of a new file that begins with these bytes. Its folder is vgpud's user's own and no link, as others
    may be allowed to write to the folder above. Raises OSError, and leaves no file then.
    """
    folder = path.parent
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(parent).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it is another user's folder", str(folder))
        os.fchmod(parent, 0o700)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(path.name, flags, 0o600, dir_fd=parent)
        try:
            if os.write(fd, begin) != len(begin):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        except OSError:
            os.close(fd)
            os.unlink(path.name, dir_fd=parent)
            raise
        return fd
    finally:
        os.close(parent)
