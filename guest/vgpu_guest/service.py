"""A service's unit and drop-ins, as far as vgpu's drop-in depends on them; the tree may be another user's."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from .layout import drop_in, unit_name
from .tree import Tree, TreeError

# systemd.unit(5): a file hides files of the same name in later folders.
FOLDERS = (
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
_FILE_CAP = 1 << 20
_FILES_CAP = 256
_SETTING = re.compile(r"\s*([A-Za-z0-9]+)\s*=\s*(.*?)\s*")


class ServiceError(Exception):
    """The service does not exist, or a drop-in cannot configure it."""


@dataclass
class Service:
    """The settings of a unit's files without vgpu's own drop-in. Specifiers (`%h`) are not expanded."""

    name: str
    settings: dict[str, list[str]] = field(default_factory=dict)  # [Service]; an empty assignment resets the list
    file: str = ""
    drop_ins: list[str] = field(default_factory=list)

    def variable(self, name: str) -> str:
        """The last Environment= assignment of a variable, "" if there is none or UnsetEnvironment= removes it."""
        value = ""
        for line in self.settings.get("Environment", []):
            for word in split_words(line):
                key, equals, text = word.partition("=")
                if equals and key == name:
                    value = text
        unset = [word for line in self.settings.get("UnsetEnvironment", []) for word in split_words(line)]
        return "" if name in unset or f"{name}={value}" in unset else value

    def program(self) -> str:
        """The program of the first ExecStart=, "" if there is none."""
        for line in self.settings.get("ExecStart", []):
            words = split_words(line.lstrip("@-:+!|"))
            if words:
                return words[0]
        return ""


def read_service(tree: Tree, name: str, *, with_ours: bool = False) -> Service:
    """Read a unit and its drop-ins; vgpu's own drop-in only if `with_ours`.

    Raises:
        ServiceError: there is no such unit, it is masked, or it cannot be read.
    """
    unit = unit_name(name)
    names = [unit]
    if "@" in unit and not unit.endswith("@.service"):
        names.append(unit.partition("@")[0] + "@.service")
    paths = [f"{folder}/{candidate}" for candidate in names for folder in FOLDERS]
    main = next((path for path in paths if _exists(tree, path)), None)
    if main is None:
        raise ServiceError(f"there is no service {unit} in {tree.root}")
    if _is_masked(tree, main):
        raise ServiceError(f"{unit} is masked: {tree.show(main)} is a link to /dev/null")
    service = Service(unit, file=main, drop_ins=_drop_ins(tree, names, with_ours))
    for path in [main, *service.drop_ins]:
        _read_settings(service, _text(tree, path))
    return service


def environment_files(tree: Tree, service: Service) -> dict[str, str]:
    """Variable to file: the variables set by EnvironmentFile=, which override any Environment=."""
    found: dict[str, str] = {}
    for value in service.settings.get("EnvironmentFile", []):
        path = value.lstrip("-").strip('"')
        if not path.startswith("/") or "%" in path or not _exists(tree, path[1:]):
            continue
        for line in _text(tree, path[1:]).splitlines():
            key, equals, _ = line.strip().partition("=")
            if equals and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
                found[key] = path
    return found


def _drop_ins(tree: Tree, names: list[str], with_ours: bool) -> list[str]:
    """Paths of a unit's drop-ins, sorted by file name."""
    found: dict[str, str] = {}
    for name in ["service", *names[::-1]]:
        for folder in FOLDERS[::-1]:
            try:
                entries = tree.names(tree.follow(f"{folder}/{name}.d"))
            except (FileNotFoundError, NotADirectoryError, TreeError):
                continue
            for entry in entries[:_FILES_CAP]:
                if entry.endswith(".conf") and not entry.startswith("."):
                    found[entry] = f"{folder}/{name}.d/{entry}"
    ours = "" if with_ours else drop_in(names[0]).rsplit("/", 1)[-1]
    return [found[entry] for entry in sorted(found) if entry != ours and not _is_masked(tree, found[entry])]


def _exists(tree: Tree, path: str) -> bool:
    try:
        tree.follow(path)
    except FileNotFoundError:
        return _is_masked(tree, path)
    except (NotADirectoryError, TreeError):
        return False
    return True


def _is_masked(tree: Tree, path: str) -> bool:
    try:
        head, _, name = path.rpartition("/")
        return tree.read_link(f"{tree.follow(head)}/{name}") == "/dev/null"
    except OSError:
        return False


def _text(tree: Tree, path: str) -> str:
    try:
        return tree.read(tree.follow(path), _FILE_CAP).decode(errors="replace")
    except (OSError, ValueError) as error:
        raise ServiceError(str(error)) from error


def _read_settings(service: Service, text: str) -> None:
    section = ""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.lstrip().startswith("["):
            section = line.strip().strip("[]")
        elif section == "Service" and line.lstrip()[:1] not in ("#", ";") and (match := _SETTING.fullmatch(line)):
            values = service.settings.setdefault(match[1], [])
            if match[2]:
                values.append(match[2])
            else:
                values.clear()


def split_words(text: str) -> list[str]:
    """systemd's quoting is near enough to the shell's; what the shell cannot split is split at blanks."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
