"""The administrator's notice as shim/notice reads it: whether there is one, and its text (docs/notice.md)"""

from __future__ import annotations

import os

CONFIGURATION = "/etc/vgpu/notice.conf"
MARKER = "/etc/vgpu/blocked"
_DEFAULT = "GPUs are switched off for you on this machine, by its administrator."
_NBYTES = 8191
_TEXT_NBYTES = 2047


def message(configuration: str = CONFIGURATION) -> str:
    """The notice's text in one line, "" if the marker file does not exist."""
    marker, lines = MARKER, []
    for line in _read(configuration, _NBYTES).splitlines():
        key, equals, value = line.partition("=")
        if not equals or line.lstrip().startswith("#"):
            continue
        if key.strip() == "marker":
            marker = value.strip()
        elif key.strip() == "message":
            lines.append(value.strip())
    if not os.path.isfile(marker):
        return ""
    text = _read(marker, _TEXT_NBYTES).strip() or "\n".join(lines) or _DEFAULT
    return " ".join(text.split())


def _read(path: str, nbytes: int) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(nbytes).decode(errors="replace")
    except OSError:
        return ""
