"""A systemd service as its files describe it: unit, drop-ins, environment files. The files are read instead of asking
systemd, so that this works for an image, too.

What a running manager adds (its own environment, generators, `systemctl set-environment`) is not in these files; for a
running service the process's real environment is read as well.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from ..layout import LayoutError
from ..service import FOLDERS, ServiceError, read_service, split_words
from ..tree import Tree
from .process import read_text

_FILE_NBYTES = 1 << 20
_WORD = re.compile(r"""[A-Za-z_][A-Za-z0-9_]*=.*""", re.DOTALL)
_EXEC_PREFIXES = "@-:+!|"


@dataclass
class Unit:
    """One service. `environment` has the variables that its files set; `command` is its first ExecStart."""

    name: str
    files: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    settings: dict[str, list[str]] = field(default_factory=dict)  # section [Service]: all values of each setting
    missing_files: list[str] = field(default_factory=list)  # files of EnvironmentFile= that do not exist

    def last(self, name: str) -> str:
        """A setting's last value, "" if there is none."""
        values = self.settings.get(name, [])
        return values[-1] if values else ""


def load(name: str) -> Unit | None:
    """The unit with that name in the calling process's root, or None."""
    try:
        with Tree(Path("/")) as tree:
            service = read_service(tree, name, with_ours=True)
            files = [str(tree.show(path)) for path in (service.file, *service.drop_ins)]
    except (ServiceError, LayoutError, OSError):
        return None
    unit = Unit(service.name, files, settings=service.settings)
    _evaluate(unit)
    return unit


def _evaluate(unit: Unit) -> None:
    for value in unit.settings.get("Environment", []):
        for word in split_words(value):
            if _WORD.fullmatch(word):
                key, _, text = word.partition("=")
                unit.environment[key] = _expand(text, unit.name)
    for value in unit.settings.get("EnvironmentFile", []):
        _read_environment_file(unit, value.strip())
    for value in unit.settings.get("UnsetEnvironment", []):
        for word in split_words(value):
            key, equals, text = word.partition("=")
            if not equals or unit.environment.get(key) == text:
                unit.environment.pop(key, None)
    for value in unit.settings.get("ExecStart", [])[:1]:
        words = split_words(value.lstrip(_EXEC_PREFIXES))
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
            unit.environment[key] = " ".join(split_words(text)) if text[:1] in "'\"" and text else text.strip()


def _expand(text: str, name: str) -> str:
    """Expand the specifiers that occur in paths, and no others."""
    stem = name.rpartition(".")[0]
    instance = stem.partition("@")[2]
    values = {"%%": "%", "%i": instance, "%I": instance.replace("-", "/"), "%n": name, "%N": stem, "%h": "/root"}
    return re.sub("%[%iInNh]", lambda found: values[found[0]], text)


def user_of(unit: Unit) -> tuple[str, str]:
    """User= and Group=; "" means root."""
    return unit.last("User"), unit.last("Group")


def services_running(word: str) -> list[str]:
    """Names of the services in the calling process's root whose ExecStart= contains `word`."""
    names: dict[str, None] = {}
    for directory in (f"/{folder}" for folder in FOLDERS):
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
