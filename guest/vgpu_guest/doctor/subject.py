"""The subject of a diagnosis: a service, a process, a command, a file or just this machine; with its real
environment."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..elf import MAGIC
from ..layout import LayoutError, unit_name
from ..preload import resolve_program
from . import process, unit
from .bundle import unpacked
from .place import Place, PlaceError, User, ask
from .wrapper import unfollowed, unwrap

if TYPE_CHECKING:
    from collections.abc import Sequence

_SERVICE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"  # systemd's default PATH of a service


class SubjectError(Exception):
    """The subject cannot be found. `kind` names a verdict, `advice` tells how to find it; the text is for the user."""

    def __init__(self, kind: str, text: str, advice: str = "") -> None:
        super().__init__(text)
        self.kind = kind
        self.advice = advice


@dataclass
class Subject:
    """What is examined. `program` is the path, in `place`, of the binary that the kernel runs; None: any program."""

    kind: str  # service, process, command, file, machine
    label: str
    place: Place
    environment: dict[str, str]
    program: str | None = None
    arguments: tuple[str, ...] = ()  # of `program`, which is the interpreter if a script is run
    notes: list[str] = field(default_factory=list)  # which parts of the subject are not examined
    process: process.Process | None = None
    unit: unit.Unit | None = None
    pids: list[int] = field(default_factory=list)
    bundled: str = ""  # the folder of libraries that a bundle puts before LD_LIBRARY_PATH


def of_machine(root: str) -> Subject:
    """The subject for any program that this shell may start."""
    return Subject("machine", "this machine" if root == "/" else root, _here(root), dict(os.environ))


def of_command(command: Sequence[str], root: str) -> Subject:
    """The subject for a command, as this shell would run it."""
    environment = dict(os.environ)
    place = _here(root)
    unwrapped = unwrap(list(command), environment)
    words = unwrapped.words
    program, script = ask(place, _resolve, words[0], environment.get("PATH", os.defpath))
    if program is None:
        text = f"{words[0]}: no such command, or not an executable file"
        if "/" not in words[0] and ask(place, os.path.exists, words[0]):
            text += f"; the file in this folder is ./{words[0]}"
            raise SubjectError("program-missing", text, f"vgpu doctor ./{shlex.quote(words[0])}")
        raise SubjectError("program-missing", text, f"command -v {shlex.quote(words[0])}")
    arguments = (script, *words[1:]) if script else tuple(words[1:])
    label = words[0] if words[0] == command[0] else f"{words[0]} (started by {command[0]})"
    notes = [*unwrapped.notes, *ask(place, unfollowed, program, list(arguments))]
    return _opened(Subject("command", label, place, environment, program, arguments, notes))


def of_file(file: str, root: str) -> Subject:
    """The subject for a program or library, by its path."""
    path = os.path.abspath(file) if root == "/" else file
    place = _here(root)
    if not ask(place, os.path.isfile, path):
        what = "a folder" if ask(place, os.path.isdir, path) else "no such file"
        raise SubjectError("program-missing", f"{file}: {what}", f"ls -ld {shlex.quote(file)}")
    if interpreter := ask(place, _interpreter, path):
        return replace(of_command([*interpreter, path], root), label=file)
    return _opened(Subject("file", file, place, dict(os.environ), path))


def of_process(pid: int) -> Subject:
    """The subject for a running process."""
    try:
        found = process.inspect(pid)
    except PlaceError as error:
        raise SubjectError("process-unreadable", str(error), f"sudo vgpu doctor --pid {pid}") from error
    place = Place(pid=pid, user=found.user, cwd=found.cwd)
    label = f"process {pid} ({os.path.basename(found.program)})"
    arguments = found.arguments[1:]
    return Subject("process", label, place, found.environment, found.program, arguments, process=found, pids=[pid])


def of_service(name: str, root: str) -> Subject:
    """The subject for a systemd service: its process if it is running, else the process described by its unit files."""
    place = Place(root)  # systemd starts services in /
    loaded = ask(place, _load_unit, name)
    try:
        full = unit_name(name)
    except LayoutError as error:
        raise SubjectError("service-unknown", str(error)) from error
    if loaded is None:
        others = ask(place, unit.services_running, name.removesuffix(".service"))
        hint = f"; there is {', '.join(others)}" if others else ""
        word = name.removesuffix(".service")
        advice = f"vgpu doctor --service {others[0]}" if others else f"systemctl list-units --all '*{word}*'"
        raise SubjectError("service-unknown", f"there is no unit {full}{hint}", advice)
    found = unit.Unit(**loaded)
    pids = process.in_cgroup(full) or _running(found, root)
    if pids:
        subject = of_process(_main(pids, found))
        return replace(subject, kind="service", label=full, unit=found, pids=pids)
    if not found.command:
        raise SubjectError("service-unknown", f"{full} has no ExecStart")
    home = found.last("RootDirectory")
    if home:
        place = Place(os.path.join(root, home.lstrip("/")))
    directory = found.last("WorkingDirectory").lstrip("-")
    if os.path.isabs(directory):
        place = replace(place, cwd=directory)
    environment = {"PATH": _SERVICE_PATH, **found.environment}
    unwrapped = unwrap(list(found.command), environment)
    words = unwrapped.words
    program, script = ask(place, _resolve, words[0], environment.get("PATH", _SERVICE_PATH))
    arguments = (script, *words[1:]) if script else tuple(words[1:])
    user = ask(Place(root), _look_up_user, *unit.user_of(found))
    if user is not None and os.geteuid() == 0:
        place = replace(place, user=User(user[0], user[1], tuple(user[2])))
    notes = [*unwrapped.notes, *ask(place, unfollowed, program or "", list(arguments))]
    subject = Subject("service", full, place, environment, program, arguments, notes, unit=found)
    if program is None:
        raise SubjectError("program-missing", f"{full} starts {words[0]}, which is not there")
    return _opened(subject)


def _opened(subject: Subject) -> Subject:
    """Set the environment that a bundle gives its program. The program in a single-file bundle cannot be examined."""
    found = ask(subject.place, unpacked, subject.program)
    if found["libraries"]:
        path = subject.environment.get("LD_LIBRARY_PATH", "")
        subject.bundled = found["libraries"]
        subject.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, (subject.bundled, path)))
    elif found["kind"]:
        what = f"{subject.program} ({found['kind']}) was not looked into"
        subject.notes.append(f"{what}: it unpacks its program when it starts, then: vgpu doctor --pid PID")
        subject.program = None
    return subject


def _here(root: str) -> Place:
    """The place of a program that this shell would start: this root and its working directory, or another root."""
    try:
        return Place(root, cwd=os.getcwd() if root == "/" else "/")
    except FileNotFoundError:  # the working directory was removed
        return Place(root)


def _resolve(name: str, path: str) -> tuple[str | None, str]:
    """Runs in the program's place: the binary at the end of `#!` lines, and the script, "" if the program is the binary
    itself."""
    found = resolve_program(name, path)
    if found is None:
        return None, ""
    first = shutil.which(name, path=path) or ""
    return str(found), first if first and _is_script(first) else ""


def _is_script(file: str) -> bool:
    try:
        return process.read(file, 2) == b"#!"
    except OSError:
        return False


def _interpreter(file: str) -> list[str]:
    """Runs in the program's place: the interpreter of a script that may not be executable; [] for other files."""
    try:
        head = process.read(file, 256)
    except OSError:
        return []
    if head.startswith(b"#!"):
        words = head[2:].split(b"\n", 1)[0].decode(errors="replace").split()
        if words and os.path.basename(words[0]) == "env":
            words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return words
    return ["python3"] if file.endswith(".py") and head[:4] != MAGIC else []


def _load_unit(name: str) -> dict[str, object] | None:
    found = unit.load(name)
    return vars(found) if found is not None else None


def _running(found: unit.Unit, root: str) -> list[int]:
    """Pids of processes that run the unit's program; used if there are no systemd cgroups, as in a container."""
    if not found.command:
        return []
    program = shutil.which(found.command[0], path=_SERVICE_PATH) or found.command[0]
    wanted = os.path.realpath(os.path.join(root, program.lstrip("/")))
    pids = []
    for pid in process.processes():
        try:
            if os.path.realpath(f"/proc/{pid}/exe") == wanted:
                pids.append(pid)
        except OSError:
            continue
    return sorted(pids)


def _main(pids: Sequence[int], found: unit.Unit) -> int:
    """The main process of a unit: the first process whose program has the file name in ExecStart=."""
    name = os.path.basename(found.command[0]) if found.command else ""
    for pid in pids:
        try:
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == name:
                return pid
        except OSError:
            continue
    return pids[0]


def _look_up_user(user: str, group: str) -> tuple[int, int, list[int]] | None:
    """Runs in the program's place: ids of User= and Group= by /etc/passwd and /etc/group. None: root or unknown."""
    if not user:
        return None
    for line in process.read_text("/etc/passwd", 1 << 20).splitlines():
        fields = line.split(":")
        if len(fields) > 3 and user in (fields[0], fields[2]) and fields[2].isdigit() and fields[3].isdigit():
            groups = [f for f in map(_group_fields, process.read_text("/etc/group", 1 << 20).splitlines()) if f]
            gid = next((number for name, number, _ in groups if group in (name, str(number))), int(fields[3]))
            return int(fields[2]), gid, [number for _, number, members in groups if fields[0] in members]
    return None


def _group_fields(line: str) -> tuple[str, int, list[str]] | None:
    fields = line.split(":")
    return (fields[0], int(fields[2]), fields[3].split(",")) if len(fields) == 4 and fields[2].isdigit() else None
