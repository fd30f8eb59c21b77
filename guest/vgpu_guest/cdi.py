"""A Container Device Interface spec: with it podman, docker and containerd add the libraries and the endpoint.

The spec has only mounts and variables, no hook: no code of vgpu runs when a container starts, and no code of a
container runs on the host. The spec has version 0.5 of the interface, so that podman 4.3 (Debian 12) can read it.
Source: the interface's SPEC.md at tags.cncf.io/container-device-interface.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .endpoint_url import socket_path
from .layout import PROFILERS, RELEASE, RUNTIMES, STEMS, SYSTEM

if TYPE_CHECKING:
    from pathlib import Path

    from .tree import Tree

VERSION = "0.5.0"
KIND = "vgpu.dev/gpu"
NVIDIA = "nvidia.com/gpu"
INSIDE = f"/{SYSTEM.libraries}"  # the folder of the libraries in the container
# LD_LIBRARY_PATH of images made for NVIDIA's runtime. The spec can only replace the variable, not extend it.
USUAL_PATH = ("/usr/local/nvidia/lib", "/usr/local/nvidia/lib64", "/usr/local/cuda/lib64")
# The loader's default folders: those of Debian and Ubuntu, and of Fedora and its derivatives.
_DEFAULT_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")
_READ_ONLY = ["ro", "nosuid", "nodev", "bind"]
_FILE_CAP = 1 << 20


class CdiError(Exception):
    """The spec cannot be made; one line says why."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The contents of the spec.

    `libraries` is the folder on the host; `path` is appended to it in the container's LD_LIBRARY_PATH, or None to mount
    each library into the loader's default folders; `profilers` are the major versions of vgpu's libcupti to preload;
    `configuration` is a guest.conf that has a token and is therefore mounted.
    """

    libraries: Path
    endpoint: str
    kind: str = KIND
    path: tuple[str, ...] | None = USUAL_PATH
    runtimes: tuple[str, ...] = ()
    profilers: tuple[str, ...] = ()
    count: int = 0
    shares_folder: bool = False
    configuration: Path | None = None


def make_spec(choices: Choices) -> dict[str, Any]:
    """The spec. The device `all` has every GPU; `0`, `1`, ... have one GPU each and cannot be combined.

    Raises:
        CdiError: a library is missing.
    """
    variables: list[str] = []
    mounts = _library_mounts(choices)
    if choices.path is not None:
        runtimes = [f"{INSIDE}/cudart/{major}" for major in choices.runtimes]
        profilers = [f"{INSIDE}/{path.rpartition('/')[0]}" for path in _profilers(choices.libraries).values()]
        variables.append("LD_LIBRARY_PATH=" + ":".join([INSIDE, *profilers, *choices.path, *runtimes]))
    if choices.profilers:
        files = [f"{INSIDE}/{_profilers(choices.libraries)[PROFILERS[major]]}" for major in choices.profilers]
        variables.append("LD_PRELOAD=" + ":".join(files))
    socket = socket_path(choices.endpoint)
    if socket is not None:
        shared = socket.rpartition("/")[0] if choices.shares_folder else socket
        mounts.append(_mount(shared, shared))
    if choices.configuration is not None:
        mounts.append(_mount(str(choices.configuration), f"/{SYSTEM.endpoint}"))
    endpoint = f"VGPU_ENDPOINT={choices.endpoint}"  # the interface requires edits in each device
    devices = [{"name": "all", "containerEdits": {"env": [endpoint]}}]
    for index in range(choices.count):
        devices.append({"name": str(index), "containerEdits": {"env": [endpoint, f"CUDA_VISIBLE_DEVICES={index}"]}})
    edits: dict[str, Any] = {"env": variables} if variables else {}
    edits["mounts"] = mounts
    return {"cdiVersion": VERSION, "kind": choices.kind, "devices": devices, "containerEdits": edits}


def _library_mounts(choices: Choices) -> list[dict[str, Any]]:
    folder = choices.libraries
    if not (folder / "libcuda.so.1").is_file():
        raise CdiError(f"{folder} has no libcuda.so.1: run vgpu install, or name the folder with --library-dir")
    for major in choices.runtimes:
        if not (folder / "cudart" / major / RUNTIMES[major]).is_file():
            raise CdiError(f"{folder} has no CUDA runtime {major}")
    profilers = _profilers(folder)
    for major in choices.profilers:
        if PROFILERS[major] not in profilers:
            raise CdiError(f"{folder} has no libcupti of CUDA {major}")
    if choices.path is not None:
        return [_mount(str(folder), INSIDE)]
    names = {f"{stem}.so{suffix}": f"{stem}.so.1" for stem in STEMS for suffix in (".1", "")}
    names |= {f"{stem}.so.{RELEASE}": f"{stem}.so.1" for stem in STEMS}
    names |= {RUNTIMES[major]: f"cudart/{major}/{RUNTIMES[major]}" for major in choices.runtimes}
    names |= profilers
    found = [(name, str((folder / source).resolve())) for name, source in names.items()]
    mounts = [_mount(source, f"{where}/{name}") for where in _DEFAULT_FOLDERS for name, source in found]
    # Preloaded by path: a preloaded bare name would be searched for in the program's RPATH.
    preloaded = [profilers[PROFILERS[major]] for major in choices.profilers]
    return mounts + [_mount(str((folder / path).resolve()), f"{INSIDE}/{path}") for path in preloaded]


def _profilers(folder: Path) -> dict[str, str]:
    """The libcupti files that the folder has: name to path below the folder."""
    paths = {soname: f"cupti/{major}/{soname}" for major, soname in PROFILERS.items()}
    return {soname: path for soname, path in paths.items() if (folder / path).is_file()}


def _mount(source: str, target: str) -> dict[str, Any]:
    return {"hostPath": source, "containerPath": target, "options": _READ_ONLY}


def to_json(spec: dict[str, Any]) -> str:
    """The spec as JSON."""
    return json.dumps(spec, indent=2) + "\n"


def to_yaml(spec: dict[str, Any]) -> str:
    """The spec as YAML, with strings quoted as in JSON (YAML is a superset of JSON)."""
    return "---\n" + "".join(f"{line}\n" for line in _yaml(spec, 0))


def _yaml(value: Any, depth: int) -> list[str]:
    pad = "  " * depth
    lines: list[str] = []
    if isinstance(value, dict):
        for key, below in value.items():
            if isinstance(below, (dict, list)):
                lines += [f"{pad}{key}:", *_yaml(below, depth + 1)]
            else:
                lines.append(f"{pad}{key}: {json.dumps(below)}")
        return lines
    for item in value:
        if isinstance(item, (dict, list)):
            first, *rest = _yaml(item, depth + 1)
            lines += [f"{pad}- {first.lstrip()}", *rest]
        else:
            lines.append(f"{pad}- {json.dumps(item)}")
    return lines


def is_ours(text: str, kind: str) -> bool:
    """Whether a file's content is a spec of this kind that vgpu wrote; other files are never replaced."""
    return names_kind(text, kind) and "VGPU_ENDPOINT=" in text


def names_kind(text: str, kind: str) -> bool:
    """Whether a spec, JSON or YAML, is of this kind."""
    return re.search(rf"[\"']?kind[\"']?\s*:\s*[\"']?{re.escape(kind)}[\"'\s,}}]", text) is not None


def specs_of(tree: Tree) -> list[str]:
    """The specs in a tree's /etc/cdi that mount the libraries of `vgpu install`."""
    found = []
    with suppress(OSError):
        for name in tree.names("etc/cdi"):
            with suppress(OSError, ValueError):
                text = tree.read(f"etc/cdi/{name}", _FILE_CAP).decode(errors="replace")
                if re.search(rf"hostPath\"?\s*:\s*\"?{INSIDE}[/\"]", text):
                    found.append(f"etc/cdi/{name}")
    return found
