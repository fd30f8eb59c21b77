"""Which file the loader takes for each CUDA library of this program, and which candidates it does not take.

This is asked for the program itself, and for each of its libraries that has its own search path (asker.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..elf import ElfError, read_dynamic
from ..preload import expand
from . import asker, judge_library, loader, need
from .library import describe, may_read, obstacle, words
from .names import DRIVER, NAMES, NVML
from .place import PlaceError, ask, execute

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .subject import Subject

_SYSTEM = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
_KNOWN = ("/usr/lib/vgpu", "/usr/local/lib", "/usr/local/cuda/lib64", "/usr/lib/wsl/lib", "/usr/lib/nvidia")
_LDCONFIG_TIMEOUT_S = 5.0
_LOSERS_CAP = 32
_CANDIDATES_CAP = 4096  # another user's LD_LIBRARY_PATH may be megabytes long


def check(subject: Subject, diagnosis: Diagnosis) -> None:
    """Fills `libraries` and `listing`, and adds the library-... findings, those for libcuda first."""
    administrator = subject.place.as_administrator()
    own = [] if subject.program is None else ask(administrator, _own_paths, subject.program)
    runpath = tuple(directory for kind, directory in own if kind == "RUNPATH")
    cache = _loader_cache(subject)
    answers = [loader.find(subject.place, subject.environment, subject.program, name, runpath) for name in NAMES]
    files = {answer.name: dict(_candidates(subject, answer, own, cache)[::-1]) for answer in answers}
    wanted = [[*files[answer.name], *filter(None, [answer.file])] for answer in answers]
    known = _facts(subject, wanted)
    for answer in answers:
        diagnosis.libraries[answer.name] = _entry(answer, files[answer.name], known)
    judge_library.judge(subject, diagnosis)
    if subject.program is not None:
        diagnosis.listing = loader.list_program(subject.place, subject.environment, subject.program)
        _check_askers(subject, diagnosis, diagnosis.listing)


def _facts(subject: Subject, wanted: list[list[str]]) -> dict[str, dict[str, Any]]:
    """The kinds of the existing files; those that the subject's user cannot read are marked."""
    administrator = subject.place.as_administrator()
    known: dict[str, dict[str, Any]] = ask(administrator, _describe_present, wanted)
    readable = ask(subject.place, may_read, list(known))
    for file, is_readable in zip(known, readable, strict=True):
        if not is_readable and known[file]["kind"] not in ("dead-link", "denied"):
            known[file]["kind"] = "denied"
            known[file]["obstacle"] = ask(administrator, obstacle, file)
    return known


def _check_askers(subject: Subject, diagnosis: Diagnosis, listing: loader.Listing) -> None:
    """Check which libcuda and NVML the program's libraries and plugins get when they call dlopen."""
    files = [file for file in listing.libraries.values() if file and not asker.is_systems(file)]
    files += ask(subject.place.as_administrator(), need.python_packages, subject.program)
    for entry in ask(subject.place.as_administrator(), asker.read_paths, files):
        one = asker.from_json(entry)
        for name in (DRIVER, NVML):
            answer = loader.find(subject.place, subject.environment, subject.program, name, one.runpath, one.rpath)
            if answer.file is None or answer.file == diagnosis.libraries[name]["resolved"]:
                continue
            fact = _facts(subject, [[answer.file]])[answer.file]
            way = "RPATH" if one.rpath else "RUNPATH"
            judge_library.judge_asker(subject, diagnosis, name, one.file, fact, way)


def _describe_present(names: list[list[str]]) -> dict[str, dict[str, Any]]:
    """Runs in the program's place: the descriptions of the existing candidates, in order."""
    files = dict.fromkeys(file for candidates in names for file in candidates[:_CANDIDATES_CAP])
    return {file: describe(file) for file in files if os.path.lexists(file)}


def _entry(answer: loader.Answer, why: dict[str, str], known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The JSON entry of one name. `why`: the candidates in reverse order of the loader's search."""
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
    """Where a file of this name may be, and what makes the loader look there, in the loader's order."""
    found = [(tried.file, tried.why) for tried in answer.tried]
    found += [(f"{directory}/{answer.name}", f"{kind} of {subject.program}") for kind, directory in own]
    if subject.environment.get("LD_LIBRARY_PATH"):  # an empty entry is the working directory
        for directory in subject.environment["LD_LIBRARY_PATH"].replace(";", ":").split(":"):
            folder = os.path.normpath(os.path.join(subject.place.cwd, directory))
            found.append((f"{folder}/{answer.name}", "LD_LIBRARY_PATH"))
    found += [(file, "loader cache") for file in cache.get(answer.name, [])]
    found += [(f"{directory}/{answer.name}", "system search path") for directory in _SYSTEM]
    return found + [(f"{directory}/{answer.name}", "not searched") for directory in _KNOWN]


def _own_paths(program: str) -> list[tuple[str, str]]:
    """Runs in the program's place: RPATH and RUNPATH of a program."""
    try:
        dynamic = read_dynamic(Path(program))
    except (ElfError, OSError):
        return []
    file = Path(program).resolve()
    rpath: list[Path] = expand(dynamic.rpath, file)
    runpath: list[Path] = expand(dynamic.runpath, file)
    return [("RPATH", str(path)) for path in rpath] + [("RUNPATH", str(path)) for path in runpath]


def _loader_cache(subject: Subject) -> dict[str, list[str]]:
    """Name to files in the loader's cache of the program's place; empty without ldconfig."""
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
