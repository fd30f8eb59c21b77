"""All installations of Ollama on a machine, and their CUDA libraries. These functions run in the program's place."""

from __future__ import annotations

import os
import re
from typing import Any

from ..leftover import DRIVER_FILE
from . import unit
from .library import describe
from .process import read_text

PORT = 11434
_BINARIES = ("/usr/local/bin/ollama", "/usr/bin/ollama", "/bin/ollama", "/opt/ollama/bin/ollama")
_SNAP = "/snap/ollama/current/meta/snap.yaml"
_BACKEND = "libggml-cuda.so"
_ENTRIES_CAP = 64


def installs(path: str) -> list[dict[str, Any]]:
    """Ollama binaries, units and the snap; the folders of `path`, a PATH, are searched as well."""
    found: dict[str, dict[str, Any]] = {}
    candidates = [*_BINARIES, *(f"{directory}/ollama" for directory in path.split(":") if directory)]
    for file in candidates[:_ENTRIES_CAP]:
        if os.path.isfile(file) and not os.path.realpath(file).startswith("/snap/"):
            found.setdefault(os.path.realpath(file), {"kind": "binary", "name": os.path.realpath(file)})
    listed = list(found.values())
    for name in unit.services_running("ollama"):
        loaded = unit.load(name)
        if loaded is not None and loaded.command:
            listed.append({"kind": "unit", "name": name, "command": loaded.command[0]})
    text = read_text(_SNAP)
    if text:
        confinement = re.search(r"^confinement:\s*(\w+)", text, re.MULTILINE)
        kind = confinement[1] if confinement else "strict"
        listed.append({"kind": "snap", "name": "ollama", "confinement": kind})
    return listed


def bundles(program: str) -> dict[str, Any]:
    """The CUDA libraries of an `ollama`: `library` is its lib/ollama, `backends` the libggml-cuda.so files in it."""
    real = os.path.realpath(program)
    library = os.path.join(os.path.dirname(os.path.dirname(real)), "lib/ollama")
    backends = []
    try:
        names = sorted(os.listdir(library))
    except OSError:
        return {"library": library, "is_there": False, "backends": []}
    for name in ["", *names[:_ENTRIES_CAP]]:
        file = os.path.join(library, name, _BACKEND) if name else os.path.join(library, _BACKEND)
        if os.path.isfile(file):
            backends.append(file)
    return {"library": library, "is_there": True, "backends": backends}


def leftovers(library: str) -> list[dict[str, Any]]:
    """Files named as libcuda or NVML in the bundle. Ollama ships none, and its runner finds them before vgpu's."""
    found = []
    try:
        folders = [library, *(entry.path for entry in os.scandir(library) if entry.is_dir())][:_ENTRIES_CAP]
        for folder in folders:
            for name in sorted(os.listdir(folder)):
                if DRIVER_FILE.fullmatch(name):
                    found.append(describe(os.path.join(folder, name)))
    except OSError:
        pass
    return [fact for fact in found if fact["kind"] != "ours"]


def port_of(environment: dict[str, str]) -> int:
    """The port in OLLAMA_HOST, or the default port."""
    found = re.search(r":(\d{1,5})/?$", environment.get("OLLAMA_HOST", ""))
    return int(found[1]) if found and 0 < int(found[1]) < 65536 else PORT
