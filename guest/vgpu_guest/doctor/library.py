"""The kind of a file that the loader may give a program: vgpu's, another vendor's, of the wrong class, unreadable, a
dead link.

These functions run in the program's place (see place.ask), so they return what JSON can hold.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import Any

from ..elf import MAGIC, ElfError, read_dynamic
from .process import read

HEAD_NBYTES = 64 << 20  # searched for the words by which NVIDIA's library is known
_NOTE = struct.pack("<III", 5, 4, 1) + b"vgpu\0\0\0\0"
_RELEASE = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")


def describe(file: str) -> dict[str, Any]:
    """Facts of a file. `kind`: missing, dead-link, denied, wrong-class, no-library, ours, nvidia, stub, other.

    `real` is the file behind all links, `release` the version in its name, `protocol` that in vgpu's mark.
    """
    facts: dict[str, Any] = {"file": file, "real": os.path.realpath(file), "kind": "other", "soname": ""}
    if not os.path.exists(file):
        facts["kind"] = "dead-link" if os.path.islink(file) else "missing"
        return facts
    release = _RELEASE.search(facts["real"])
    facts["release"] = release[1] if release else ""
    try:
        head = read(file, HEAD_NBYTES)
    except PermissionError:
        facts["kind"] = "denied"
        return facts
    except OSError as error:
        facts["kind"], facts["reason"] = "no-library", error.strerror
        return facts
    if head[:4] != MAGIC:
        facts["kind"], facts["reason"] = "no-library", "not an ELF file" if head else "an empty file"
        return facts
    machine = struct.unpack_from("<H", head, 18)[0] if len(head) >= 20 else 0
    if head[4:5] != b"\x02" or machine != 62:
        bits = {b"\x01": "32-bit", b"\x02": "64-bit"}.get(head[4:5], "damaged")
        facts["kind"], facts["reason"] = "wrong-class", f"{bits}, machine {machine}; x86-64 is 62"
        return facts
    facts["is_fixed"] = struct.unpack_from("<H", head, 16)[0] == 2  # ET_EXEC: a program with a fixed address
    try:
        dynamic = read_dynamic(Path(file))
    except (ElfError, OSError) as error:
        facts["kind"], facts["reason"] = "no-library", str(error)
        return facts
    facts["soname"] = dynamic.soname
    mark = head.find(_NOTE)
    if mark >= 0 and len(head) >= mark + 24:
        facts["kind"], facts["protocol"] = "ours", struct.unpack_from("<I", head, mark + 20)[0]
        if not _has_sections(head):
            facts["kind"], facts["reason"] = "no-library", "vgpu's, but damaged: its end is missing or zeros"
    elif "stubs" in Path(file).parts or "stubs" in Path(facts["real"]).parts:
        facts["kind"] = "stub"
    elif b"NVIDIA" in head or b"nvidia" in head:
        facts["kind"] = "nvidia"
    return facts


def _has_sections(data: bytes) -> bool:
    """Whether the section table at the end exists: vgpu's libraries have it, a truncated or zeroed copy does not."""
    (at,) = struct.unpack_from("<Q", data, 40)
    nbytes, count = struct.unpack_from("<HH", data, 58)
    return bool(at and count and nbytes) and any(data[at : at + nbytes * count]) and len(data) >= at + nbytes * count


def words(facts: dict[str, Any]) -> str:
    """A file's kind in words, for messages."""
    release = f" of release {facts['release']}" if facts.get("release") else ""
    return {
        "missing": "not there",
        "dead-link": f"a link to {facts['real']}, which is not there",
        "denied": "may not be read",
        "wrong-class": f"not for x86-64 ({facts.get('reason')}), as vgpu's libraries are",
        "no-library": f"neither a program nor a library ({facts.get('reason')})",
        "ours": "vgpu's",
        "nvidia": f"NVIDIA's{release}",
        "stub": "the CUDA toolkit's stub for linking",
        "other": f"of unknown origin{release}",
    }[facts["kind"]]


def describe_all(files: list[str]) -> list[dict[str, Any]]:
    """`describe` of each file, in order."""
    return [describe(file) for file in files]


def may_read(files: list[str]) -> list[bool]:
    """For each file whether the calling user may open it."""
    answers = []
    for file in files:
        try:
            os.close(os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
            answers.append(True)
        except OSError:
            answers.append(False)
    return answers


def obstacle(file: str) -> str:
    """The first directory or file on the path of `file` whose mode bits deny access to others; "" if none does."""
    path = Path(os.path.realpath(file))
    for part in [*path.parents[::-1], path]:
        try:
            mode = part.stat().st_mode
        except OSError:
            return str(part)
        if not mode & (0o001 if part != path else 0o004):
            return f"{part} (mode {mode & 0o7777:04o})"
    return ""
