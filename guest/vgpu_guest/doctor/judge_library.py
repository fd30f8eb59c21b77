"""Findings about the files that the loader names: the library-... findings, each with the command that repairs it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..layout import SYSTEM
from ..loader_conf import Obstacle, Reader, obstacle
from ..manifest import ManifestError, load_manifest
from ..tree import Tree
from . import mend
from .audit import last_denial
from .library import describe, describe_all, words
from .names import DEVELOPMENT, DRIVER, NVML
from .place import ask
from .probe import INSTALLED, candidates
from .process import read_text

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .subject import Subject

_FILE_NBYTES = 1 << 20


def judge(subject: Subject, diagnosis: Diagnosis) -> None:
    """Judge the files of every name of libcuda and NVML, then the libraries that a running process has mapped."""
    ours = our_directory(subject, diagnosis)
    for name in (DRIVER, NVML, *DEVELOPMENT):
        _judge_name(subject, diagnosis, name, ours)
    _judge_mapped(subject, diagnosis)


def our_directory(subject: Subject, diagnosis: Diagnosis) -> str | None:
    """The folder of vgpu's libraries in the program's place: that which the loader finds, else another candidate or the
    installed one, else that of this Python package."""
    entry = diagnosis.libraries.get(DRIVER, {})
    if entry.get("kind") == "ours":
        return os.path.dirname(str(entry["resolved"]))
    for loser in entry.get("losers", []):
        if loser["kind"] == "ours" and not loser.get("obstacle"):
            return os.path.dirname(str(loser["file"]))
    folders = [str(path.parent) for path in candidates()] if not subject.place.is_foreign else [str(INSTALLED)]
    for folder in folders:
        if ask(subject.place.as_administrator(), describe, f"{folder}/{DRIVER}")["kind"] == "ours":
            return folder
    return None


def judge_asker(subject: Subject, diagnosis: Diagnosis, name: str, file: str, fact: dict[str, Any], way: str) -> None:
    """Judge the file that one of the program's libraries gets when it opens `name` itself."""
    if fact["kind"] == "ours":
        return
    text = f"{file} opens {name} and gets {fact['file']} ({words(fact)}), by its {way}"
    ours = our_directory(subject, diagnosis)
    if way == "RPATH":
        diagnosis.add("library-rpath", text, _preload_command(subject, ours))
    else:
        diagnosis.add("library-foreign", text, _path_command(subject, ours))


def _judge_name(subject: Subject, diagnosis: Diagnosis, name: str, ours: str | None) -> None:
    entry = diagnosis.libraries[name]
    if entry["resolved"] is None:
        if name == DRIVER:
            _judge_missing(subject, diagnosis, entry, ours)
        elif name == NVML and diagnosis.libraries[DRIVER]["kind"] == "ours":
            diagnosis.warnings.append(f"the loader finds no {NVML}: nvidia-smi and memory numbers will be missing")
        return
    if name not in DEVELOPMENT:
        diagnosis.evidence.append(f"{name} is {entry['resolved']} ({entry['words']}), by {entry['why']}")
        for loser in entry["losers"]:
            diagnosis.evidence.append(f"  loses: {loser['file']} ({loser['words']}; {loser['why']})")
    if entry["kind"] == "ours":
        return
    if entry["kind"] == "no-library":
        text = f"{name} is {entry['resolved']}, which is {entry['words']}"
        diagnosis.add("library-damaged", text, _remove_or_repair(subject, entry["resolved"]))
        return
    denied = next((loser for loser in entry["losers"] if loser["passed_over"] and loser["kind"] == "denied"), None)
    if denied is not None:
        _add_denied(subject, diagnosis, denied)
    text = f"{name} resolves to {entry['resolved']} ({entry['words']}), by {entry['why']}"
    beside = f"; vgpu's is in {ours}" if ours else "; vgpu's is nowhere to be seen"
    if entry["why"].startswith("RPATH"):
        diagnosis.add("library-rpath", text + beside, _preload_command(subject, ours))
        return
    found = _put_first(subject, ours, entry)
    if found.why and found.why not in text:
        text += f": {found.why}" if entry["why"] != "preloaded" else ""
    diagnosis.add("library-foreign", text + beside, found.mend)


def _judge_missing(subject: Subject, diagnosis: Diagnosis, entry: dict[str, Any], ours: str | None) -> None:
    """The loader finds nothing: report the obstacle, or that no file exists."""
    diagnosis.evidence.append(f"the loader: {entry['error']}")
    for loser in entry["losers"]:
        diagnosis.evidence.append(f"  not taken: {loser['file']} ({loser['words']}; {loser['why']})")
        if not loser["passed_over"]:
            continue
        file = loser["file"]
        if loser["kind"] == "denied":
            _add_denied(subject, diagnosis, loser)
        elif loser["kind"] == "dead-link":
            command = _remove_or_repair(subject, file)
            if command.startswith("sudo rm"):  # the loader only skips the dead link: a usable file is missing
                command = _put_first(subject, ours, {"why": "", "resolved": ""}).mend
            diagnosis.add("library-dead-link", f"{file} is {loser['words']}", command)
        elif loser["kind"] == "wrong-class":
            text = f"{file} is found first, and is {loser['words']}"
            diagnosis.add("library-wrong-class", text, _put_first(subject, ours, {**entry, **loser}).mend)
        elif loser["kind"] == "no-library":
            diagnosis.add("library-damaged", f"{file} is {loser['words']}", _remove_or_repair(subject, file))
    if any(f.kind.startswith("library-") for f in diagnosis.findings):
        return
    if subject.kind == "service" and ours is not None:
        text = f"{subject.label} does not find {DRIVER} in {ours}: neither its unit nor the loader's cache says so"
        diagnosis.add("service-environment", text, service_command(subject))
    else:
        where = f"though it is in {ours}" if ours else "and vgpu's is not installed"
        found = _put_first(subject, ours, {"why": "", "resolved": ""})
        text = f"no {DRIVER} is found, {where}" + (f": {found.why}" if found.why else "")
        diagnosis.add("library-missing", text, found.mend)


def _add_denied(subject: Subject, diagnosis: Diagnosis, loser: dict[str, Any]) -> None:
    file, way = loser["file"], loser.get("obstacle", "")
    user = subject.place.user
    who = f"uid {user.uid}" if user is not None else "this user"
    profile = subject.process.confinement if subject.process is not None else ""
    if way:
        directory = way.partition(" (")[0]
        reason, command = f"{way} keeps {who} out", f"sudo chmod o+rX {shlex.quote(directory)}"
    elif profile:
        reason, name = f"AppArmor profile {profile} denies it", profile.partition(" ")[0]
        line = ask(subject.place.as_administrator(), last_denial, name, file)
        diagnosis.evidence.append(f"audit: {line}" if line else "no audit line of it can be read here")
        command = f"sudo aa-complain {shlex.quote(name)}  # or allow in it: {os.path.dirname(file)}/** rm,"
    else:
        reason, command = f"{who} may not read it", f"sudo chmod o+r {shlex.quote(file)}"
    diagnosis.add("library-denied", f"{file} is there, but {reason}", command)


def service_command(subject: Subject) -> str:
    """A command that gives a service the libraries, and restarts it."""
    word = subject.label.removesuffix(".service")
    return f"sudo vgpu install --service {word} && {mend.restart(subject.label)}"


def _put_first(subject: Subject, ours: str | None, entry: dict[str, Any]) -> Obstacle:
    """Why another file comes before vgpu's, "" if unknown, and the command that changes it."""
    why = entry["why"]
    if why == "preloaded":
        return Obstacle("LD_PRELOAD names it", unset_preload(subject, str(entry["resolved"])))
    if subject.bundled and os.path.dirname(str(entry["resolved"])) == subject.bundled:
        return Obstacle("the bundle brings it", f"sudo rm {shlex.quote(str(entry['resolved']))}")
    if subject.unit is not None:
        if ours is not None and ours in subject.environment.get("LD_LIBRARY_PATH", "").split(":"):
            return Obstacle("", _path_command(subject, ours))
        return Obstacle("", service_command(subject))
    if why in ("LD_LIBRARY_PATH", "RUNPATH") or why.startswith("RUNPATH"):
        return Obstacle("", _path_command(subject, ours))
    if ours is not None and ours != f"/{SYSTEM.libraries}" and not subject.place.is_foreign:
        return Obstacle("", "sudo vgpu install")
    found: list[str] = ask(subject.place.as_administrator(), _obstacle, str(entry.get("resolved") or ""))
    return Obstacle(*found) if found[1] else Obstacle("", "sudo vgpu install")


def _obstacle(winner: str) -> list[str]:
    """Runs in the program's place: why vgpu's folder does not come first, and the command (loader_conf.py)."""

    def names(folder: str) -> list[str]:
        try:
            return os.listdir(folder)
        except OSError:
            return []

    found = obstacle(
        Reader(lambda file: read_text(file, _FILE_NBYTES) if os.path.isfile(file) else None, names), winner
    )
    return [found.why, found.mend]


def unset_preload(subject: Subject, file: str) -> str:
    """A command that removes the entry of LD_PRELOAD, or the line of /etc/ld.so.preload, that names a file."""
    value = subject.environment.get("LD_PRELOAD", "")
    entry = next((e for e in value.replace(" ", ":").split(":") if e and file.endswith(os.path.basename(e))), "")
    if not entry:
        expression = "\\|" + file + "|d"
        return f"sudo sed -i {shlex.quote(expression)} /etc/ld.so.preload"
    return mend.set_variable(subject, "LD_PRELOAD", mend.without_entry(value, entry))


def _path_command(subject: Subject, ours: str | None) -> str:
    """A command that puts vgpu's folder first in LD_LIBRARY_PATH."""
    folder = ours or str(INSTALLED)
    rest = [e for e in subject.environment.get("LD_LIBRARY_PATH", "").split(":") if e != folder]
    if subject.unit is not None:
        return mend.set_variable(subject, "LD_LIBRARY_PATH", ":".join([folder, *filter(None, rest)]))
    return f"export LD_LIBRARY_PATH={shlex.quote(folder)}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"


def _preload_command(subject: Subject, ours: str | None) -> str:
    folder = ours or str(INSTALLED)
    value = ":".join(filter(None, [f"{folder}/{DRIVER}", f"{folder}/{NVML}", subject.environment.get("LD_PRELOAD")]))
    return mend.set_variable(subject, "LD_PRELOAD", value)


def _remove_or_repair(subject: Subject, file: str) -> str:
    """`vgpu repair` restores a file of `vgpu install`; any other file must be removed."""
    if ask(subject.place.as_administrator(), _is_installed, file):
        return "sudo vgpu repair"
    return f"sudo rm {shlex.quote(file)}"


def _is_installed(file: str) -> bool:
    """Runs in the program's place: whether the manifest contains a path."""
    try:
        with Tree(Path("/")) as tree:
            manifest = load_manifest(tree)
    except (ManifestError, OSError):
        return False
    return manifest is not None and any(f"/{entry.path}" == file for entry in manifest.entries)


def _judge_mapped(subject: Subject, diagnosis: Diagnosis) -> None:
    """Judge the libraries that a running process has mapped, which may differ from those that a new process gets."""
    if subject.process is None:
        return
    for stem, name in (("libcuda.so", DRIVER), ("libnvidia-ml.so", NVML)):
        mapped = [file for file in subject.process.libraries if os.path.basename(file).startswith(stem)]
        _judge_mapped_name(subject, diagnosis, name, mapped)


def _judge_mapped_name(subject: Subject, diagnosis: Diagnosis, name: str, mapped: list[str]) -> None:
    assert subject.process is not None
    facts = ask(subject.place.as_administrator(), describe_all, mapped)
    foreign = [fact for fact in facts if fact["kind"] not in ("ours", "missing")]
    diagnosis.evidence += [f"mapped now: {file}" for file in mapped]
    command = f"sudo systemctl restart {subject.label}" if subject.kind == "service" else ""
    advice = "" if command else "start the program again"
    distinct = {file.removesuffix(" (deleted)") for file in mapped}
    if len(distinct) > 1:
        text = f"process {subject.process.pid} maps {' and '.join(sorted(distinct))}"
        diagnosis.add("two-drivers", text, command, advice)
    elif foreign and diagnosis.libraries[name]["kind"] == "ours":
        text = (
            f"process {subject.process.pid} has {foreign[0]['file']} ({words(foreign[0])}); a new one would get vgpu's"
        )
        diagnosis.add("restart-needed", text, command, advice)
    elif any(file.endswith(" (deleted)") for file in mapped):
        text = f"process {subject.process.pid} still uses a {name} that was replaced since it started"
        diagnosis.add("restart-needed", text, command, advice)
