"""Recordings of sessions (vgpud.toml, [recording]): a file for each, in a folder of its tenant, for vgpud's user alone.

A file begins with MAGIC, the length of a JSON document as 32 bits, and the document, padded to a multiple of 8 bytes;
then comes what the worker receives and answers (executor/vgx_recording.h). The worker writes that to a pipe, and vgpud
to the file: a worker that a client has taken over can neither empty the file nor exceed `recording.session_mib`.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import json
import os
import struct
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from vgpud import __version__
from vgpud.proto.message import FEATURES_OF_SHARED_MEMORY, REGION

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vgpud.config import Config

    from .session import Session

MAGIC = b"VGPUREC1"
# With these features contents travel in shared memory, or stay on the host.
_INCOMPLETE = {*FEATURES_OF_SHARED_MEMORY, REGION, "images"}


_PIPE_NBYTES = 1 << 20
_PIECE_NBYTES = 1 << 16
_LAST_ENTRY_NBYTES = 64  # the worker says in an entry beyond its limit that it has reached it
_END_TIMEOUT_S = 1.0  # of the last bytes of recordings when vgpud ends


class Recording:
    """The pipe to a thread that writes a session's file; close() closes this end of it."""

    def __init__(self, path: Path, file: int, limit_nbytes: int, stopped: Callable[[str], None]) -> None:
        """Takes over the descriptor `file`. `stopped` is called by the thread, once and with the reason, if a worker
        writes more than the limit or the file cannot be written; then nothing reads the pipe any more. Raises OSError,
        and closes `file` then."""
        self.path = path
        try:
            source, self._fd = os.pipe()
        except OSError:
            os.close(file)
            raise
        with contextlib.suppress(OSError):  # an unprivileged user's pipes may have less
            fcntl.fcntl(source, fcntl.F_SETPIPE_SZ, _PIPE_NBYTES)
        writer = threading.Thread(
            target=_copy,
            args=(source, file, limit_nbytes + _LAST_ENTRY_NBYTES, stopped),
            name="recording",
            daemon=True,
        )
        _WRITERS.add(writer)
        try:
            writer.start()
        except RuntimeError as error:
            _WRITERS.discard(writer)
            for fd in (source, self._fd, file):
                os.close(fd)
            raise OSError(errno.EAGAIN, "no thread to write a recording") from error

    def fileno(self) -> int:
        """The end that the worker writes to; it stays this object's."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


_WRITERS: set[threading.Thread] = set()


def _copy(source: int, file: int, left: int, stopped: Callable[[str], None]) -> None:
    """Copy until the pipe's other end is closed, at most `left` bytes. The worker stops recording once its end of the
    pipe has no reader."""
    try:
        while left >= 0 and (piece := os.read(source, _PIECE_NBYTES)):
            kept = piece[:left]
            left -= len(piece)
            while kept:
                kept = kept[os.write(file, kept) :]
        if left < 0:
            stopped("the worker writes more than its limit")
    except OSError as error:
        stopped(str(error))
    finally:
        os.close(source)
        os.close(file)
        _WRITERS.discard(threading.current_thread())


@atexit.register
def _finish() -> None:
    """Workers outlive vgpud; those that have ended have their recordings whole."""
    until = time.monotonic() + _END_TIMEOUT_S  # of all together: those of workers that go on do not end
    for writer in list(_WRITERS):
        writer.join(max(until - time.monotonic(), 0.0))


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
    file = _create(path, MAGIC + struct.pack("<I", len(document)) + document)

    def stopped(why: str) -> None:
        session.log.warning("a recording has stopped", path=str(path), why=why)

    return Recording(path, file, config.recording.session_mib << 20, stopped)


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
