"""Whether this program can load vgpu's libraries at all: ELF class, static linking, setuid, snaps."""

from __future__ import annotations

import os
import shlex
import stat
from typing import TYPE_CHECKING, Any

from .library import describe, words
from .loader import LOADER, dynamic_of, find
from .names import DRIVER
from .place import ask
from .wrapper import SHELLS

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .subject import Subject


def check(subject: Subject, diagnosis: Diagnosis) -> bool:
    """Returns whether the loader can be asked about this program."""
    _check_confinement(subject, diagnosis)
    if not ask(subject.place.as_administrator(), os.path.exists, LOADER):
        text = f"{LOADER} is not there: a system without glibc (musl, as Alpine's) cannot load our libraries"
        diagnosis.add("program-wrong-class", text, advice="use an image with glibc 2.34 or newer (ldd --version)")
        return False
    if subject.program is None:
        return True
    facts = ask(subject.place.as_administrator(), _facts, subject.program)
    file = facts["file"]["file"]
    if facts["file"]["kind"] in ("wrong-class", "no-library"):
        diagnosis.add("program-wrong-class", f"{file} is {words(facts['file'])}", advice=f"file {file}")
        return False
    if facts["is_static"] and os.path.basename(subject.program) in SHELLS and subject.arguments:
        subject.program = None  # for example busybox's shell: its script may start dynamic programs
        return True
    if facts["is_static"] and (facts["file"].get("is_fixed") or facts["is_pie"] or subject.kind != "file"):
        diagnosis.add("program-static", f"{file} is linked statically", advice="rebuild it without -static")
        return False
    secure = (
        "is setuid or setgid" if facts["is_setuid"] else "has file capabilities" if facts["has_capabilities"] else ""
    )
    if subject.process is not None:
        secure = "runs in secure-execution mode" if subject.process.is_secure else ""
    if secure and ("LD_LIBRARY_PATH" in subject.environment or "LD_PRELOAD" in subject.environment):
        text = f"{file} {secure}: its loader ignores LD_LIBRARY_PATH and paths in LD_PRELOAD"
        ignored = ("LD_LIBRARY_PATH", "LD_PRELOAD")
        subject.environment = {key: value for key, value in subject.environment.items() if key not in ignored}
        answer = find(subject.place, subject.environment, subject.program, DRIVER)
        if answer.file is not None and ask(subject.place.as_administrator(), describe, answer.file)["kind"] == "ours":
            diagnosis.warnings.append(f"{text}; it finds {answer.file} without them")
        else:
            diagnosis.add("secure-execution", text)
    return True


def _check_confinement(subject: Subject, diagnosis: Diagnosis) -> None:
    process = subject.process
    program = subject.program or ""
    if program.startswith("/snap/") or (process is not None and process.is_snap):
        profile = f", profile {process.confinement}" if process is not None and process.confinement else ""
        name = program.split("/")[2] if program.startswith("/snap/") else os.path.basename(program)
        diagnosis.add(
            "snap-confined",
            f"{program} is the snap {name}{profile}: its loader, libraries and sockets are the snap's own",
            advice=f"sudo snap stop --disable {shlex.quote(name)}; install it otherwise (Ollama: docs/ollama-snap.md)",
        )
    elif process is not None and process.confinement:
        diagnosis.evidence.append(f"AppArmor profile: {process.confinement}")
    if process is not None and process.container:
        diagnosis.evidence.append(f"runs in a {process.container} container")


def _facts(program: str) -> dict[str, Any]:
    """Runs in the program's place: facts about a program."""
    dynamic = dynamic_of(program)
    try:
        mode = os.stat(program).st_mode
        has_capabilities = "security.capability" in os.listxattr(program)
    except OSError:
        mode, has_capabilities = 0, False
    return {
        "file": describe(program),
        "is_static": dynamic is not None and not dynamic.is_dynamic and not dynamic.soname and not dynamic.needed,
        "is_pie": dynamic is not None and dynamic.is_pie,
        "is_setuid": bool(mode & (stat.S_ISUID | stat.S_ISGID)),
        "has_capabilities": has_capabilities,
    }
