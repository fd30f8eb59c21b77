"""The file to attach to a report of an internal compiler error: the PTX, with the error as comments above it. The files
are in the kernel cache's directory, which is the tenant's own, and their number is bounded: a hostile image may provoke
any number of errors."""

from __future__ import annotations

import contextlib
import hashlib
import os
import traceback
from collections.abc import Sequence
from pathlib import Path

_MAX_FILES = 8
_MAX_NBYTES = 8 << 20


def write(directory: Path, facts: Sequence[str], texts: Sequence[str], error: BaseException) -> Path | None:
    """Write a dump; its path, or None where it cannot be written or enough are kept already."""
    head = [*facts, "", *"".join(traceback.format_exception(error)).splitlines()]
    data = "".join(f"// {line}\n" for line in head).encode(errors="replace")
    for text in texts:
        data += b"\n" + text.encode(errors="replace")
    data = data[:_MAX_NBYTES]
    folder = directory / "internal-errors"
    path = folder / f"{hashlib.sha256(data).hexdigest()[:16]}.ptx"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if len(os.listdir(folder)) >= _MAX_FILES and not path.exists():
            return None
        with contextlib.suppress(FileExistsError), open(path, "xb") as file:
            file.write(data)
    except OSError:
        return None
    return path
