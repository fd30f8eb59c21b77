"""Programs that contain others: PyInstaller bundles, AppImages. A single-file bundle has to run to be examined."""

from __future__ import annotations

import os

_PYINSTALLER = b"MEI\014\013\012\013\016"  # the archive's cookie, at the end of the program
_APPIMAGE = (b"AI\x01", b"AI\x02")  # at byte 8 of the ELF header
_TAIL_NBYTES = 1 << 16  # searched for the cookie: section headers may follow the archive
_FOLDER = "_internal"  # library folder of a PyInstaller bundle that is a folder


def unpacked(program: str) -> dict[str, str]:
    """Runs in the program's place. `kind` of bundle, "" for other programs; `libraries`: the folder that the bundle
    puts before LD_LIBRARY_PATH, "" if the bundle unpacks its libraries when it starts."""
    found = {"kind": "", "libraries": ""}
    try:
        with open(program, "rb") as file:
            head = file.read(16)
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_NBYTES))
            tail = file.read(_TAIL_NBYTES)
    except OSError:
        return found
    if head[8:11] in _APPIMAGE:
        found["kind"] = "AppImage"
    elif _PYINSTALLER in tail:
        found["kind"] = "PyInstaller bundle"
        folder = os.path.join(os.path.dirname(program), _FOLDER)
        if os.path.isdir(folder):
            found["libraries"] = folder
    return found
