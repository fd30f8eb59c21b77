"""guest.conf itself: may this user read it, and is each line valid?"""

from __future__ import annotations

import os
import shlex
import stat
from typing import TYPE_CHECKING, Any

from ..guest_conf import KEYS
from .place import ask
from .process import read_text

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .subject import Subject

_FILE_NBYTES = 1 << 20


def check(subject: Subject, diagnosis: Diagnosis, found: dict[str, Any]) -> None:
    """Adds configuration-denied and configuration-invalid; adds a note if the settings come from another source."""
    file = found["configuration_file"]
    from_elsewhere = found["source"] not in ("", file)
    if found["configuration"] not in ("read", "absent"):
        facts = ask(subject.place.as_administrator(), access, file, _uid(subject))
        text = f"{file} ({facts['mode']}) cannot be read by {facts['user']}: {found['configuration']}"
        if found["source"] == "VGPU_ENDPOINT":
            diagnosis.warnings.append(f"{text}; VGPU_ENDPOINT names the endpoint")
        else:
            diagnosis.add("configuration-denied", text, _let_in(facts, file), facts["advice"])
    for problem in found["problems"]:
        text = f"{file}, line {problem['line']}: {problem['what']}"
        if problem["meant"]:
            text += f"; `{problem['meant']} = ...` is meant"
            diagnosis.add("configuration-invalid", text, f"sudo sed -i {shlex.quote(problem['expression'])} {file}")
        else:
            advice = f"correct line {problem['line']} of {file}: its keys are {', '.join(KEYS)}"
            diagnosis.add("configuration-invalid", text, advice=advice)
    if found["problems"] and from_elsewhere:
        diagnosis.evidence.append(f"the endpoint comes from {found['source']}")


def _uid(subject: Subject) -> int:
    return subject.place.user.uid if subject.place.user is not None else os.geteuid()


def access(file: str, uid: int) -> dict[str, str]:
    """Runs in the program's place: mode, group and user for a command that gives access; `group` is "" for root's."""
    try:
        status = os.stat(file)
        mode, gid = stat.filemode(status.st_mode), status.st_gid
    except OSError as error:
        mode, gid = error.strerror or "unknown", 0
    readable = mode[4:5] == "r"
    group = _name("/etc/group", gid) if gid and readable else ""
    advice = "" if group or mode[:1] in "-s" else f"make {os.path.dirname(file)} open to its users: sudo chmod o+x"
    return {"mode": mode, "group": group, "user": _name("/etc/passwd", uid), "advice": advice}


def _name(file: str, number: int) -> str:
    for line in read_text(file, _FILE_NBYTES).splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2] == str(number):
            return fields[0]
    return str(number)


def _let_in(facts: dict[str, str], file: str) -> str:
    """A command that gives the user group access: the file stays unreadable for others, because it may hold a token."""
    if facts["advice"]:
        return ""
    user = shlex.quote(facts["user"])
    if facts["group"]:
        return f"sudo usermod -aG {shlex.quote(facts['group'])} {user}  # counts at the next login"
    quoted = shlex.quote(file)
    return (
        f"sudo groupadd -f vgpu && sudo chgrp vgpu {quoted} && sudo chmod g+r {quoted} "
        f"&& sudo usermod -aG vgpu {user}  # counts at the next login"
    )
