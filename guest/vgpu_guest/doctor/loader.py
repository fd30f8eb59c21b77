"""Ask the dynamic loader itself which file it takes for a name: ld.so --list, with the program's own environment.

The program is not started. For a name that it would dlopen, a generated library that needs just this name is preloaded.
The program's RPATH then applies as in its own dlopen (ld.so(8)); its RUNPATH, which applies only to the file that calls
dlopen, is copied into the generated library.
"""

from __future__ import annotations

import os
import re
import signal
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..elf import HEADER, MAGIC, Dynamic, ElfError, read_dynamic
from .place import CARRIED, Finished, Place, PlaceError, ask, execute

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOADER = "/lib64/ld-linux-x86-64.so.2"
_TIMEOUT_S = 20.0
_LIBC = "libc.so.6"
_NOTHING_NEEDED = "statically linked"  # ld.so's output for a file without DT_NEEDED
_LISTED = re.compile(r"^\t(?P<name>\S.*?)(?: => (?P<file>.+?))?(?: \(0x[0-9a-f]+\))?$")
_TRYING = re.compile(r"^\s*\d+:\s+trying file=(.*)$")
_FINDING = re.compile(r"^\s*\d+:\s+find library=(.*) \[\d+\]; searching$")
_SEARCHING = re.compile(r"^\s*\d+:\s+search (?:path=(?P<path>\S*)\s+\((?P<why>.*)\)|cache=(?P<cache>\S+))$")
_PRELOAD = re.compile(r"object '([^']*)' from (\S+) cannot be preloaded \(([^)]*)\): ignored")
_UNDEFINED = re.compile(r"^undefined symbol: (\S+?)(?:, version (\S+))?\s+\((.*)\)$")
_ERROR = re.compile(r"error while loading shared libraries: (.*)$")


@dataclass(frozen=True)
class Tried:
    """One file that the loader tried to open, and which search path led to it."""

    file: str
    why: str


@dataclass
class Answer:
    """The loader's answer for one name.

    `file` is None if the loader finds none; `error` is the loader's message. `tried` ends with the file found, if any.
    """

    name: str
    file: str | None = None
    error: str = ""
    tried: list[Tried] = field(default_factory=list)
    preloaded: bool = False

    @property
    def why(self) -> str:
        """The search path that led the loader to the file, or "preloaded"."""
        return "preloaded" if self.preloaded else self.tried[-1].why if self.tried else ""


@dataclass
class Listing:
    """The loader's answer for a whole program: its libraries and error messages."""

    libraries: dict[str, str | None] = field(default_factory=dict)
    undefined: list[tuple[str, str, str]] = field(default_factory=list)  # symbol, version, file that needs it
    complaints: list[str] = field(default_factory=list)  # messages about version tags
    refused_preloads: list[tuple[str, str, str]] = field(default_factory=list)  # entry, its source, reason
    error: str = ""
    tried: dict[str, list[Tried]] = field(default_factory=dict)


def list_program(place: Place, environment: Mapping[str, str], program: str) -> Listing:
    """What the loader would load for a program or library, without running it; relocations are checked as well."""
    # --list never checks relocations; LD_WARN does, as ldd -r. Neither runs any code, not even IFUNC resolvers.
    extra = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "yes", "LD_BIND_NOW": "1"}
    listing = _read(place, _run(place, environment, [program], extra=extra))
    if _NOTHING_NEEDED not in listing.libraries:
        return listing
    # ld.so examines a file without DT_NEEDED only if another file needs it.
    descriptor = _question(program, ())
    try:
        return _read(place, _run(place, environment, [CARRIED], descriptor, extra))
    finally:
        os.close(descriptor)


def preloaded(place: Place, environment: Mapping[str, str]) -> list[str]:
    """The files that LD_PRELOAD and /etc/ld.so.preload put into every program, in the loader's order."""
    descriptor = _question(_LIBC, ())
    try:
        libraries = _read(place, _run(place, environment, ["--list", CARRIED], descriptor)).libraries
    finally:
        os.close(descriptor)
    before = list(libraries)[: list(libraries).index(_LIBC)] if _LIBC in libraries else []  # preloaded files come first
    return [file for name in before if (file := libraries[name])]


def find(
    place: Place,
    environment: Mapping[str, str],
    program: str | None,
    name: str,
    runpath: tuple[str, ...] = (),
    rpath: tuple[str, ...] = (),
) -> Answer:
    """Which file a program gets when it opens `name`; if `program` is None, a program without RPATH.

    `runpath` and `rpath` are those of the file that calls dlopen, with $ORIGIN expanded; the program's own RPATH is
    known to the loader.
    """
    descriptor = _question(name, runpath, rpath)
    try:
        arguments = ["--list", CARRIED] if program is None else ["--preload", CARRIED, "--list", program]
        listing = _read(place, _run(place, environment, arguments, descriptor))
    finally:
        os.close(descriptor)
    if any(source == "--preload" for _, source, _ in listing.refused_preloads):
        raise PlaceError("the loader there cannot read what it is asked by: is /proc mounted?")
    if program is not None and _NOTHING_NEEDED in listing.libraries:
        return find(place, environment, None, name, runpath, rpath)
    if program is not None and listing.error and not listing.error.startswith(f"{name}:"):
        return _despite(place, environment, listing, name, runpath)
    answer = Answer(name, tried=listing.tried.get(name, []))
    listed = listing.libraries.get(name)
    if listed is not None:
        answer.file = listed
    elif name not in listing.libraries and not listing.error:
        # The loader did not search: a preloaded file already has this name.
        answer.file = next((f for n, f in listing.libraries.items() if f and ask(place, _soname, f) == name), None)
        answer.preloaded = answer.file is not None
    if answer.file is None:
        answer.error = listing.error or f"{name}: not found"
    return answer


def _despite(
    place: Place, environment: Mapping[str, str], listing: Listing, name: str, runpath: tuple[str, ...]
) -> Answer:
    """The answer if the loader stops because the program needs another library that is missing. If it stopped before it
    searched `name`, the loader is asked again without the program."""
    tried = listing.tried.get(name, [])
    if not tried:
        return find(place, environment, None, name, runpath)
    found = ask(place, _soname, tried[-1].file)
    if found:
        return Answer(name, file=tried[-1].file, tried=tried)
    return Answer(name, error=f"{name}: cannot open shared object file", tried=tried)


def _soname(file: str) -> str:
    try:
        return read_dynamic(Path(file)).soname
    except (ElfError, OSError):
        return ""


def dynamic_of(program: str) -> Dynamic | None:
    """Runs in the program's place: its dynamic section; None if the file is no 64-bit ELF file or unreadable."""
    try:
        return read_dynamic(Path(program))
    except (ElfError, OSError):
        return None


def _run(
    place: Place,
    environment: Mapping[str, str],
    arguments: list[str],
    descriptor: int | None = None,
    extra: Mapping[str, str] | None = None,
) -> Finished:
    dropped = ("LD_DEBUG_OUTPUT", "LD_TRACE_LOADED_OBJECTS", "LD_VERBOSE", "LD_PROFILE", "LD_SHOW_AUXV")
    kept = {key: value for key, value in environment.items() if key not in dropped}
    own = {**kept, **(extra or {})}
    own.pop("LD_DEBUG", None)
    command = [LOADER, *arguments]
    finished = execute(place, command, {**own, "LD_DEBUG": "libs"}, timeout_s=_TIMEOUT_S, carried=descriptor)
    if finished.code == -signal.SIGXFSZ:  # the log of thousands of directories is too long: run again without it
        finished = execute(place, command, own, timeout_s=_TIMEOUT_S, carried=descriptor)
    if finished.code is None:
        raise PlaceError(f"{LOADER} did not answer within {_TIMEOUT_S:g} s")
    return finished


def _read(place: Place, finished: Finished) -> Listing:
    listing = Listing()
    finding, why = "", ""
    for line in finished.stderr.splitlines():
        if found := _FINDING.match(line):
            finding = found[1]
            listing.tried.setdefault(finding, [])
        elif found := _SEARCHING.match(line):
            why = found["why"] or f"loader cache {found['cache']}"
        elif found := _TRYING.match(line):
            listing.tried.setdefault(finding, []).append(Tried(_absolute(place, found[1]), why))
        elif found := _PRELOAD.search(line):
            listing.refused_preloads.append((found[1], found[2], found[3]))
        elif found := _UNDEFINED.match(line):
            listing.undefined.append((found[1], found[2] or "", found[3]))
        elif found := _ERROR.search(line):
            listing.error = found[1]
        elif "no version information available" in line or ("version `" in line and "not found" in line):
            listing.complaints.append(line.strip())
    for line in finished.stdout.splitlines():
        if found := _UNDEFINED.match(line):
            listing.undefined.append((found[1], found[2] or "", found[3]))
        elif found := _LISTED.match(line):
            name, file = found["name"], found["file"]
            if file is None and ("/" in name or listing.tried.get(name)):  # a file in the working directory has no =>
                file = name
            listing.libraries[name] = None if file is None or file == "not found" else _absolute(place, file)
    if finished.code is not None and finished.code < 0 and not listing.error:
        listing.error = f"the loader died of signal {-finished.code}"
    return listing


def _absolute(place: Place, file: str) -> str:
    """The absolute path of a file named by the loader; relative and empty search path entries give relative names."""
    return file if file.startswith("/") else os.path.normpath(os.path.join(place.cwd, file))


def _question(name: str, runpath: tuple[str, ...], rpath: tuple[str, ...] = ()) -> int:
    """The descriptor of a memory file with a library that needs `name`."""
    descriptor = os.memfd_create("vgpu-doctor", 0)
    os.write(descriptor, needing(name, runpath, rpath))
    return descriptor


def needing(name: str, runpath: tuple[str, ...] = (), rpath: tuple[str, ...] = ()) -> bytes:
    """The smallest shared library that the loader accepts, with one DT_NEEDED and perhaps a DT_RUNPATH or DT_RPATH."""
    strings = b"\0"
    entries = []
    for tag, text in ((1, name), (29, ":".join(runpath)), (15, "" if runpath else ":".join(rpath))):
        if text:
            entries.append((tag, len(strings)))
            strings += os.fsencode(text) + b"\0"
    header, programs = HEADER, struct.Struct("<IIQQQQQQ")
    dynamic_at = header.size + 2 * programs.size
    dynamic_nbytes = 16 * (len(entries) + 6)
    hash_at = dynamic_at + dynamic_nbytes
    symbols_at = hash_at + 16
    strings_at = symbols_at + 24
    nbytes = strings_at + len(strings)
    entries += [(4, hash_at), (5, strings_at), (6, symbols_at), (10, len(strings)), (11, 24), (0, 0)]
    parts = [
        header.pack(MAGIC, 2, 1, 1, 0, 0, 3, 62, 1, 0, header.size, 0, 0, header.size, programs.size, 2, 64, 0, 0),
        programs.pack(1, 6, 0, 0, 0, nbytes, nbytes, 4096),
        programs.pack(2, 6, dynamic_at, dynamic_at, dynamic_at, dynamic_nbytes, dynamic_nbytes, 8),
        *(struct.pack("<qQ", *entry) for entry in entries),
        struct.pack("<4I", 1, 1, 0, 0),
        bytes(24),
        strings,
    ]
    return b"".join(parts)


def directories(answer: Answer) -> Iterator[str]:
    """The folders that the loader searched, each once, without subfolders for processor variants (glibc-hwcaps)."""
    seen = dict.fromkeys(os.path.dirname(tried.file) for tried in answer.tried)
    return (d for d in seen if "glibc-hwcaps" not in d and "/tls" not in d)
