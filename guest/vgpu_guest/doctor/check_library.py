"""Which file each CUDA library is for this program: the loader's own answer, the winner and the losers."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..elf import ElfError, read_dynamic
from ..preload import expand
from . import loader
from .audit import last_denial
from .library import describe, describe_all, may_read, obstacle, words
from .place import PlaceError, ask, execute
from .probe import INSTALLED, candidates

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .subject import Subject

DRIVER = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"
RUNTIMES = ("libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13")
NAMES = (DRIVER, "libcuda.so", NVML, *RUNTIMES)
_SYSTEM = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
_KNOWN = ("/usr/lib/vgpu", "/usr/local/lib", "/usr/local/cuda/lib64", "/usr/lib/wsl/lib", "/usr/lib/nvidia")
_LDCONFIG_TIMEOUT_S = 5.0
_LOSERS_CAP = 32
_CANDIDATES_CAP = 4096  # a stranger's LD_LIBRARY_PATH may be megabytes long


def check(subject: Subject, diagnosis: Diagnosis) -> None:
    """Fills `libraries` and adds the library-... findings; first of all for libcuda."""
    administrator = subject.place.as_administrator()
    own = [] if subject.program is None else ask(administrator, _own_paths, subject.program)
    runpath = tuple(directory for kind, directory in own if kind == "RUNPATH")
    cache = _loader_cache(subject)
    answers = [loader.find(subject.place, subject.environment, subject.program, name, runpath) for name in NAMES]
    files = {answer.name: dict(_candidates(subject, answer, own, cache)[::-1]) for answer in answers}
    wanted = [[*files[answer.name], *filter(None, [answer.file])] for answer in answers]
    known = ask(administrator, _describe_present, wanted)
    readable = ask(subject.place, may_read, list(known))
    for file, is_readable in zip(known, readable, strict=True):
        if not is_readable and known[file]["kind"] not in ("dead-link", "denied"):
            known[file]["kind"] = "denied"
            known[file]["obstacle"] = ask(administrator, obstacle, file)
    for answer in answers:
        diagnosis.libraries[answer.name] = _entry(answer, files[answer.name], known)
    _judge_driver(subject, diagnosis)
    _judge_mapped(subject, diagnosis)


def _describe_present(names: list[list[str]]) -> dict[str, dict[str, Any]]:
    """In the place: of the candidates those that are there, each once, in their order."""
    files = dict.fromkeys(file for candidates in names for file in candidates[:_CANDIDATES_CAP])
    return {file: describe(file) for file in files if os.path.lexists(file)}


def _entry(answer: loader.Answer, why: dict[str, str], known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the JSON says of one name. `why` has the candidates, what comes first for the loader last."""
    winner = known.get(answer.file) if answer.file else None
    seen = {winner["real"]} if winner else set()
    tried = {tried.file for tried in answer.tried}
    losers = []
    for file in reversed(why):
        fact = known.get(file)
        key = os.path.normpath(file) if fact is None or fact["kind"] == "dead-link" else fact["real"]
        if fact is None or key in seen or file == answer.file:
            continue
        seen.add(key)
        losers.append({**fact, "why": why[file], "words": words(fact), "passed_over": file in tried})
    return {
        "resolved": answer.file,
        "real": winner["real"] if winner else None,
        "kind": winner["kind"] if winner else None,
        "release": winner.get("release", "") if winner else "",
        "protocol": winner.get("protocol") if winner else None,
        "soname": winner["soname"] if winner else "",
        "words": words(winner) if winner else "not found",
        "why": answer.why if answer.file else "",
        "error": "" if answer.file else answer.error,
        "losers": losers[:_LOSERS_CAP],
    }


def _candidates(
    subject: Subject, answer: loader.Answer, own: list[tuple[str, str]], cache: dict[str, list[str]]
) -> list[tuple[str, str]]:
    """Where else a file of this name may lie, and what would make the loader look there, in its order."""
    found = [(tried.file, tried.why) for tried in answer.tried]
    found += [(f"{directory}/{answer.name}", f"{kind} of {subject.program}") for kind, directory in own]
    for directory in subject.environment.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"):
        if directory:
            found.append((f"{directory}/{answer.name}", "LD_LIBRARY_PATH"))
    found += [(file, "loader cache") for file in cache.get(answer.name, [])]
    found += [(f"{directory}/{answer.name}", "system search path") for directory in _SYSTEM]
    return found + [(f"{directory}/{answer.name}", "not searched") for directory in _KNOWN]


def _own_paths(program: str) -> list[tuple[str, str]]:
    """In the place: RPATH and RUNPATH of a program."""
    try:
        dynamic = read_dynamic(Path(program))
    except (ElfError, OSError):
        return []
    file = Path(program).resolve()
    rpath: list[Path] = expand(dynamic.rpath, file)
    runpath: list[Path] = expand(dynamic.runpath, file)
    return [("RPATH", str(path)) for path in rpath] + [("RUNPATH", str(path)) for path in runpath]


def _loader_cache(subject: Subject) -> dict[str, list[str]]:
    """The files of the loader's cache there, by name; empty without ldconfig."""
    try:
        finished = execute(subject.place, ["/sbin/ldconfig", "-p"], {}, timeout_s=_LDCONFIG_TIMEOUT_S)
    except PlaceError:
        return {}
    found: dict[str, list[str]] = {}
    for line in finished.stdout.splitlines():
        name, arrow, file = line.strip().partition(" => ")
        if arrow and name.split()[0] in NAMES:
            found.setdefault(name.split()[0], []).append(file)
    return found


def our_directory(subject: Subject, diagnosis: Diagnosis) -> str | None:
    """Where our libraries lie there: seen by the loader's side, or installed, or this Python's."""
    for loser in diagnosis.libraries.get(DRIVER, {}).get("losers", []):
        if loser["kind"] == "ours" and not loser.get("obstacle"):
            return os.path.dirname(str(loser["file"]))
    folders = [str(path.parent) for path in candidates()] if not subject.place.is_foreign else [str(INSTALLED)]
    for folder in folders:
        if ask(subject.place.as_administrator(), describe, f"{folder}/{DRIVER}")["kind"] == "ours":
            return folder
    return None


def _judge_driver(subject: Subject, diagnosis: Diagnosis) -> None:
    entry = diagnosis.libraries[DRIVER]
    ours = our_directory(subject, diagnosis)
    passed_over = [loser for loser in entry["losers"] if loser["passed_over"]]
    if entry["resolved"] is None:
        _judge_missing(subject, diagnosis, entry, ours)
        return
    diagnosis.evidence.append(f"{DRIVER} is {entry['resolved']} ({entry['words']}), by {entry['why']}")
    for loser in entry["losers"]:
        diagnosis.evidence.append(f"  loses: {loser['file']} ({loser['words']}; {loser['why']})")
    if entry["kind"] == "ours":
        return
    denied = next((loser for loser in passed_over if loser["kind"] == "denied"), None)
    if denied is not None:
        _add_denied(subject, diagnosis, denied)
    text = f"{DRIVER} resolves to {entry['resolved']} ({entry['words']}), by {entry['why']}"
    beside = f"; vgpu's is in {ours}" if ours else "; vgpu's is nowhere to be seen"
    if entry["why"].startswith("RPATH"):
        diagnosis.add("library-rpath", text + beside, _preload_command(subject, ours))
    else:
        diagnosis.add("library-foreign", text + beside, _put_first_command(subject, ours, entry["why"]))


def _judge_missing(subject: Subject, diagnosis: Diagnosis, entry: dict[str, Any], ours: str | None) -> None:
    """The loader has nothing: say what stood in the way, else that nothing was there."""
    diagnosis.evidence.append(f"the loader: {entry['error']}")
    for loser in entry["losers"]:
        diagnosis.evidence.append(f"  not taken: {loser['file']} ({loser['words']}; {loser['why']})")
        if not loser["passed_over"]:
            continue
        file = loser["file"]
        if loser["kind"] == "denied":
            _add_denied(subject, diagnosis, loser)
        elif loser["kind"] == "dead-link":
            diagnosis.add("library-dead-link", f"{file} is {loser['words']}", f"rm {shlex.quote(file)} && vgpu repair")
        elif loser["kind"] == "wrong-class":
            text = f"{file} is found first, and is {loser['words']}"
            diagnosis.add("library-wrong-class", text, _put_first_command(subject, ours, loser["why"]))
        elif loser["kind"] == "no-library":
            diagnosis.add("library-damaged", f"{file} is {loser['words']}", f"rm {shlex.quote(file)} && vgpu repair")
    if any(f.kind.startswith("library-") for f in diagnosis.findings):
        return
    if subject.kind == "service" and ours is not None:
        text = f"{subject.label} does not find {DRIVER} in {ours}: neither its unit nor the loader's cache says so"
        word = subject.label.removesuffix(".service")
        diagnosis.add("service-environment", text, f"sudo vgpu install --service {word}")
    else:
        where = f"though it is in {ours}" if ours else "and vgpu's is not installed"
        diagnosis.add("library-missing", f"no {DRIVER} is found, {where}", _put_first_command(subject, ours, ""))


def _add_denied(subject: Subject, diagnosis: Diagnosis, loser: dict[str, Any]) -> None:
    file, way = loser["file"], loser.get("obstacle", "")
    user = subject.place.user
    who = f"uid {user.uid}" if user is not None else "this user"
    profile = subject.process.confinement if subject.process is not None else ""
    if way:
        directory = way.partition(" (")[0]
        reason, mend = f"{way} keeps {who} out", f"sudo chmod o+rX {shlex.quote(directory)}"
    elif profile:
        reason, name = f"AppArmor profile {profile} denies it", profile.partition(" ")[0]
        line = ask(subject.place.as_administrator(), last_denial, name, file)
        diagnosis.evidence.append(f"audit: {line}" if line else "no audit line of it can be read here")
        mend = f"sudo aa-complain {shlex.quote(name)}  # or allow in it: {os.path.dirname(file)}/** rm,"
    else:
        reason, mend = f"{who} may not read it", f"sudo chmod o+r {shlex.quote(file)}"
    diagnosis.add("library-denied", f"{file} is there, but {reason}", mend)


def _put_first_command(subject: Subject, ours: str | None, why: str) -> str:
    word = subject.label.removesuffix(".service")
    if subject.kind == "service":
        return f"sudo vgpu install --service {word}"
    if why == "LD_LIBRARY_PATH" and ours is not None:
        return f"export LD_LIBRARY_PATH={shlex.quote(ours)}:$LD_LIBRARY_PATH"
    return "sudo vgpu install"


def _preload_command(subject: Subject, ours: str | None) -> str:
    file = f"{ours or INSTALLED}/{DRIVER}"
    if subject.unit is not None:
        return f"systemctl edit {subject.unit.name}  # [Service] Environment=LD_PRELOAD={file}"
    return f"export LD_PRELOAD={file}  # or: vgpu run -- {subject.program}"


def _judge_mapped(subject: Subject, diagnosis: Diagnosis) -> None:
    """What a running process really has, which may be older than what a new one would get."""
    if subject.process is None:
        return
    mapped = [file for file in subject.process.libraries if os.path.basename(file).startswith("libcuda.so")]
    facts = ask(subject.place.as_administrator(), describe_all, mapped)
    foreign = [fact for fact in facts if fact["kind"] not in ("ours", "missing")]
    diagnosis.evidence += [f"mapped now: {file}" for file in mapped]
    restart = f"sudo systemctl restart {subject.label}" if subject.kind == "service" else "start the program again"
    distinct = {file.removesuffix(" (deleted)") for file in mapped}
    if len(distinct) > 1:
        diagnosis.add("two-drivers", f"process {subject.process.pid} maps {' and '.join(sorted(distinct))}", restart)
    elif foreign and diagnosis.libraries[DRIVER]["kind"] == "ours":
        text = (
            f"process {subject.process.pid} has {foreign[0]['file']} ({words(foreign[0])}); a new one would get vgpu's"
        )
        diagnosis.add("restart-needed", text, restart)
    elif any(file.endswith(" (deleted)") for file in mapped):
        text = f"process {subject.process.pid} still uses a libcuda that was replaced since it started"
        diagnosis.add("restart-needed", text, restart)
