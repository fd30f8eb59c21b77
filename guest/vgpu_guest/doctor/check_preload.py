"""Every preload entry must open: in /etc/ld.so.preload, which applies to all programs, and in LD_PRELOAD."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING, Any

from . import mend
from .library import describe, describe_all, words
from .place import ask
from .process import read_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .diagnosis import Diagnosis
    from .subject import Subject

FILE = "/etc/ld.so.preload"
_FILE_NBYTES = 1 << 20
_ENTRIES_CAP = 64


def check(subject: Subject, diagnosis: Diagnosis) -> None:
    """Adds preload-garbage and preload-missing."""
    system: list[dict[str, Any]] = ask(subject.place.as_administrator(), _system_entries)
    lines = len({facts["line"] for facts in system})
    for facts in system:
        entry, command = facts["file"], removal(facts["line"], lines)
        if not os.path.isabs(entry) or facts["kind"] in ("no-library", "wrong-class"):
            reason = words(facts) if os.path.isabs(entry) else "not an absolute path"
            text = f"{FILE} has a line {entry!r}: {reason}"
            diagnosis.add("preload-garbage", text, command)
        elif facts["kind"] in ("missing", "dead-link", "denied"):
            text = f"{FILE} names {entry}: {words(facts)}; the loader goes on without it"
            diagnosis.add("preload-missing", text, command)
    entries = [e for e in re.split(r"[: ]+", subject.environment.get("LD_PRELOAD", "")) if e][:_ENTRIES_CAP]
    with_paths = [entry for entry in entries if "/" in entry]
    for facts in ask(subject.place, describe_all, with_paths):
        if facts["kind"] in ("missing", "dead-link", "denied", "no-library", "wrong-class"):
            text = f"LD_PRELOAD names {facts['file']}: {words(facts)}; the loader only warns and goes on without it"
            diagnosis.add("preload-missing", text, _unset(subject, facts["file"], entries))


def removal(line: str, count: int) -> str:
    """A command that removes one of `count` lines with shell builtins only: other programs may fail to start."""
    if count == 1:
        return f": >{FILE}"
    quoted = shlex.quote(line)
    return f't=; while IFS= read -r l; do [ "$l" = {quoted} ] || t="$t$l\n"; done <{FILE}; printf %s "$t" >{FILE}'


def _unset(subject: Subject, entry: str, entries: Sequence[str]) -> str:
    return mend.set_variable(subject, "LD_PRELOAD", ":".join(e for e in entries if e != entry))


def _system_entries() -> list[dict[str, Any]]:
    """Runs in the program's place. The loader treats blanks and colons as separators, and # as a comment."""
    entries: list[dict[str, Any]] = []
    for line in read_text(FILE, _FILE_NBYTES).splitlines():
        for entry in re.split(r"[:\s]+", line.partition("#")[0].strip()):
            if entry and len(entries) < _ENTRIES_CAP:
                entries.append({**describe(entry), "line": line})
    return entries
