"""Ollama: which of several installs answers on its port, and whether its own CUDA libraries are whole."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from . import check_need, loader, mend, ollama, process
from .library import words
from .place import PlaceError, ask

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .subject import Subject


def concerns(subject: Subject) -> bool:
    """Whether the subject is an Ollama."""
    return os.path.basename(subject.program or "") == "ollama" or subject.label.startswith("ollama")


def check(subject: Subject, diagnosis: Diagnosis) -> None:
    """Fills `installs`; adds port-owned-by-other, bundle-missing and other faults of a bundle."""
    place = subject.place.as_administrator()
    diagnosis.installs = ask(place, ollama.installs, subject.environment.get("PATH", ""))
    for install in diagnosis.installs:
        detail = install.get("command") or install.get("confinement") or ""
        diagnosis.evidence.append(f"Ollama: {install['kind']} {install['name']}" + (f" ({detail})" if detail else ""))
    _judge_port(subject, diagnosis)
    if subject.program is None or os.path.basename(subject.program) != "ollama" or subject.program.startswith("/snap/"):
        return
    found = ask(place, ollama.bundles, subject.program)
    if not found["backends"]:
        what = "has no libggml-cuda.so" if found["is_there"] else "is not there"
        diagnosis.add("bundle-missing", f"{found['library']} {what}: {subject.program} can only use the CPU")
    for backend in found["backends"]:
        _judge_backend(subject, diagnosis, found["library"], backend)
    for fact in ask(place, ollama.leftovers, found["library"]):
        text = f"{fact['file']} is not part of Ollama ({words(fact)}) and is found before vgpu's by its runner"
        diagnosis.add("library-foreign", text, f"sudo rm {shlex.quote(fact['file'])}{_restart(subject)}")


def _restart(subject: Subject) -> str:
    return f" && {mend.restart(subject.label)}" if subject.kind == "service" else ""


def _judge_backend(subject: Subject, diagnosis: Diagnosis, library: str, backend: str) -> None:
    """Check a backend with its runner's environment: the bundle's directories precede the service's LD_LIBRARY_PATH."""
    own = subject.environment.get("LD_LIBRARY_PATH", "")
    path = ":".join(filter(None, (library, os.path.dirname(backend), own)))
    runner = replace(subject, program=backend, environment={**subject.environment, "LD_LIBRARY_PATH": path})
    listing = loader.list_program(runner.place, runner.environment, backend)
    check_need.judge_listing(runner, diagnosis, listing)
    driver = listing.libraries.get("libcuda.so.1")
    if driver:
        diagnosis.evidence.append(f"{backend} gets {driver}")


def _judge_port(subject: Subject, diagnosis: Diagnosis) -> None:
    port = ollama.port_of(subject.environment)
    owners = process.listeners(port)
    for pid in owners:
        try:
            owner = process.inspect(pid)
        except PlaceError as error:
            diagnosis.warnings.append(f"port {port} is owned by process {pid}: {error}")
            continue
        kind = "snap" if owner.is_snap else owner.container or os.path.basename(owner.cgroup.strip()) or "user process"
        diagnosis.evidence.append(f"port {port} is owned by process {pid}: {owner.program} ({kind})")
        diagnosis.installs.append({"kind": "listener", "name": owner.program, "pid": pid, "port": port, "of": kind})
        if subject.kind == "service" and pid not in subject.pids:
            text = f"port {port} belongs to process {pid} ({owner.program}, {kind}), not to {subject.label}"
            diagnosis.add("port-owned-by-other", text, advice=f"vgpu doctor --pid {pid}")
