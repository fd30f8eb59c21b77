"""A systemd service as its files say: unit, drop-ins, environment files. Read, not asked for: works in an image, too.

What a running manager adds (its own environment, generators, `systemctl set-environment`) is not in these files; for a
running service the process's real environment is read as well.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from .process import read_text

DIRECTORIES = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
_FILE_NBYTES = 1 << 20
_DROP_INS_CAP = 256
_SETTING = re.compile(r"^\s*([A-Za-z0-9]+)\s*=\s*(.*)$")
_WORD = re.compile(r"""[A-Za-z_][A-Za-z0-9_]*=.*""", re.DOTALL)
_EXEC_PREFIXES = "@-:+!|"


@dataclass
class Unit:
    """One service. `environment` is what its files set; `command` is its first ExecStart."""

    name: str
    files: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    settings: dict[str, list[str]] = field(default_factory=dict)  # of [Service], all values in order
    missing_files: list[str] = field(default_factory=list)  # EnvironmentFile= that is not there

    def last(self, name: str) -> str:
        """A setting's last value, "" if there is none."""
        values = self.settings.get(name, [])
        return values[-1] if values else ""


def full_name(name: str) -> str:
    """`ollama` means `ollama.service`."""
    return name if re.search(r"\.(service|scope|slice)$", name) else f"{name}.service"


def load(name: str) -> Unit | None:
    """The unit of that name below `/` of the calling process, or None."""
    name = full_name(name)
    if "/" in name or name.startswith("."):
        return None
    names = [name]
    template = re.fullmatch(r"(.+@)[^@]+(\.\w+)", name)
    if template:
        names.append(template[1] + template[2])
    main = next((f"{d}/{n}" for n in names for d in DIRECTORIES if os.path.isfile(f"{d}/{n}")), None)
    if main is None:
        return None
    unit = Unit(name, [os.path.realpath(main), *_drop_ins(["service", *names[::-1]])])
    for file in unit.files:
        _read(unit, file)
    _evaluate(unit)
    return unit


def _drop_ins(names: list[str]) -> list[str]:
    """By file name over all directories; of two of the same name, the one of the earlier directory counts."""
    found: dict[str, str] = {}
    for name in names:
        for directory in DIRECTORIES[::-1]:
            try:
                entries = sorted(os.listdir(f"{directory}/{name}.d"))[:_DROP_INS_CAP]
            except OSError:
                continue
            for entry in entries:
                if entry.endswith(".conf"):
                    found[entry] = f"{directory}/{name}.d/{entry}"
    return [found[entry] for entry in sorted(found)]


def _read(unit: Unit, file: str) -> None:
    section = ""
    text = re.sub(r"\\\n", " ", read_text(file, _FILE_NBYTES))
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line.strip("[]")
        elif section == "Service" and line[:1] not in ("#", ";") and (found := _SETTING.match(line)):
            values = unit.settings.setdefault(found[1], [])
            if found[2]:
                values.append(found[2])
            else:
                values.clear()  # an empty assignment begins anew


def _evaluate(unit: Unit) -> None:
    for value in unit.settings.get("Environment", []):
        for word in _words(value):
            if _WORD.fullmatch(word):
                key, _, text = word.partition("=")
                unit.environment[key] = _expand(text, unit.name)
    for value in unit.settings.get("EnvironmentFile", []):
        _read_environment_file(unit, value.strip())
    for value in unit.settings.get("UnsetEnvironment", []):
        for word in _words(value):
            key, equals, text = word.partition("=")
            if not equals or unit.environment.get(key) == text:
                unit.environment.pop(key, None)
    for value in unit.settings.get("ExecStart", [])[:1]:
        words = _words(value.lstrip(_EXEC_PREFIXES))
        unit.command = tuple(_expand(word, unit.name) for word in words)


def _read_environment_file(unit: Unit, value: str) -> None:
    optional, path = value.startswith("-"), value.lstrip("-").strip('"')
    if not os.path.isabs(path):
        return
    if not os.path.isfile(path):
        if not optional:
            unit.missing_files.append(path)
        return
    for line in re.sub(r"\\\n", "", read_text(path, _FILE_NBYTES)).splitlines():
        line = line.strip()
        if line[:1] in ("#", ";", ""):
            continue
        key, equals, text = line.partition("=")
        if equals and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            unit.environment[key] = " ".join(_words(text)) if text[:1] in "'\"" and text else text.strip()


def _words(text: str) -> list[str]:
    """systemd's quoting is near enough to the shell's; what the shell cannot split is split at blanks."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _expand(text: str, name: str) -> str:
    """The specifiers that stand in paths; others stay as they are."""
    stem = name.rpartition(".")[0]
    instance = stem.partition("@")[2]
    values = {"%%": "%", "%i": instance, "%I": instance.replace("-", "/"), "%n": name, "%N": stem, "%h": "/root"}
    return re.sub("%[%iInNh]", lambda found: values[found[0]], text)


def user_of(unit: Unit) -> tuple[str, str]:
    """User= and Group=, "" for root's."""
    return unit.last("User"), unit.last("Group")


def services_running(word: str) -> list[str]:
    """Names of the services below `/` whose command's file name is `word`."""
    names: dict[str, None] = {}
    for directory in DIRECTORIES:
        try:
            entries = sorted(os.listdir(directory))
        except OSError:
            continue
        for entry in entries:
            if entry.endswith(".service") and re.search(rf"ExecStart=.*\b{re.escape(word)}\b", _text(directory, entry)):
                names.setdefault(entry)
    return list(names)


def _text(directory: str, entry: str) -> str:
    return read_text(str(Path(directory) / entry), _FILE_NBYTES)
