"""The administrator's orders, kept for the next vgpud in one JSON file that is replaced as a whole."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

VERSION = 1
_NAME = "state.json"
_NBYTES_CAP = 16 << 20


class StateError(Exception):
    """The file cannot be used; the text names it."""


class StateFile:
    """The file in vgpud's state directory; without a directory nothing is saved."""

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / _NAME

    @property
    def lasts(self) -> bool:
        """Whether saved state survives a restart."""
        return self._path is not None

    def load(self) -> dict[str, Any]:
        """The state that was saved last, or an empty one. Raises StateError if it cannot be read, because refused
        tenants must not be admitted.
        """
        if self._path is None:
            return {}
        try:
            with self._path.open("rb") as file:
                document = json.loads(file.read(_NBYTES_CAP + 1))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise StateError(f"{self._path}: {error}: mend it, or move it away and issue the tokens again") from error
        if not isinstance(document, dict) or document.get("version") != VERSION:
            raise StateError(f"{self._path}: not written by this version of vgpud")
        return document

    def save(self, document: dict[str, Any]) -> None:
        """Replace the file: after a crash there is the old one or the new one. Raises OSError; the old one stays."""
        if self._path is None:
            return
        directory = self._path.parent
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, partial = tempfile.mkstemp(prefix=f".{_NAME}.", dir=directory)  # mode 0600
        try:
            with open(fd, "w") as file:
                json.dump({"version": VERSION} | document, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
