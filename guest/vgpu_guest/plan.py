"""The contents of an installation: each file with its content, derived from the request. Nothing is written here."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .layout import PROBE, RELEASE, STEMS, SYSTEM, USER_SHELL, Layout, drop_in
from .manifest import Entry, Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .service import Service

_PIECE_NBYTES = 1 << 20
_BY = "# Made by `vgpu install`; `vgpu uninstall` removes it.\n"


@dataclass(frozen=True, slots=True)
class Item:
    """One file or link to make: `source` is a file to copy, or the content itself."""

    entry: Entry
    source: Path | bytes = b""

    def content(self) -> Iterator[bytes]:
        """The file's content, in pieces."""
        if isinstance(self.source, bytes):
            yield self.source
            return
        with self.source.open("rb") as file:
            while piece := file.read(_PIECE_NBYTES):
                yield piece


def plan(
    request: Request,
    payload: Mapping[str, Path],
    layout: Layout,
    root: Path,
    services: Mapping[str, Service],
    preload: Mapping[str, Sequence[str]],
) -> list[Item]:
    """The items to create, in order: an item that names a file comes after the file.

    Args:
        payload: the libraries, as find_payload() gives them.
        root: the folder that the layout's paths are relative to for programs: `/`, or a user's home.
        services: the settings of each unit in the request.
        preload: for each unit the libraries to preload, as paths below vgpu's library folder.
    """
    items = _libraries(request, payload, layout)
    if layout is SYSTEM:
        items += _system(request, layout, services, preload)
        items += _profilers(request, payload, layout)
    else:
        items += _user(request, layout, root)
    return items


def _libraries(request: Request, payload: Mapping[str, Path], layout: Layout) -> list[Item]:
    items: list[Item] = []
    for stem in STEMS:
        name = f"{stem}.so.{RELEASE}"
        items.append(_copy(f"{layout.libraries}/{name}", payload[name]))
        for link in (f"{stem}.so.1", f"{stem}.so"):
            items.append(Item(Entry(f"{layout.libraries}/{link}", "link", 0o777, target=name)))
    if PROBE in payload:
        items.append(_copy(f"{layout.libraries}/{PROBE}", payload[PROBE], 0o755))
    for path, source in payload.items():
        parts = path.split("/")
        if parts[0] == "cupti" or (parts[0] == "cudart" and parts[1] in request.runtimes):
            items.append(_copy(f"{layout.libraries}/{path}", source))
    return items


def _system(
    request: Request, layout: Layout, services: Mapping[str, Service], preload: Mapping[str, Sequence[str]]
) -> list[Item]:
    items: list[Item] = []
    if request.endpoint:
        items.append(_text(layout.endpoint, _guest_conf(request.endpoint), kind="configuration"))
    if request.runtimes and layout.loader_runtimes:
        folders = "".join(f"/{layout.runtime(major)}\n" for major in request.runtimes)
        items.append(_text(layout.loader_runtimes, f"{_BY}# Last: any other libcudart is found before.\n{folders}"))
    if request.machine and layout.loader:
        items.append(_text(layout.loader, f"{_BY}/{layout.libraries}\n"))
    if request.smi and layout.smi:
        items.append(_text(layout.smi, f'#!/bin/sh\n{_BY}exec {request.smi} smi "$@"\n', mode=0o755))
    for unit, endpoint in request.services.items():
        text = _drop_in(unit, endpoint or request.endpoint, endpoint, services[unit], layout, preload[unit])
        items.append(_text(drop_in(unit), text))
    return items


def _profilers(request: Request, payload: Mapping[str, Path], layout: Layout) -> list[Item]:
    """The configuration by which the loader finds vgpu's libcupti, after any other libcupti."""
    folders = [f"/{layout.libraries}/{path.rpartition('/')[0]}\n" for path in payload if path.startswith("cupti/")]
    if not (request.machine and layout.loader_profilers and folders):
        return []
    return [_text(layout.loader_profilers, f"{_BY}# Last: any other libcupti is found before.\n{''.join(folders)}")]


def _guest_conf(endpoint: str) -> str:
    return (
        "# How this machine's programs reach vgpud; written by `vgpu install --endpoint`, yours to change.\n"
        "# A `token = ...` line is needed for tcp to another machine.\n"
        f"endpoint = {endpoint}\n"
    )


def _drop_in(unit: str, reached: str, endpoint: str, service: Service, layout: Layout, preload: Sequence[str]) -> str:
    path = [f"/{layout.libraries}"]
    own = service.variable("LD_LIBRARY_PATH")
    path += [own] if own else []  # the drop-in's assignment replaces the unit's value
    variables = {"LD_LIBRARY_PATH": ":".join(path)}
    if preload:
        ours = [f"/{layout.libraries}/{file}" for file in preload]
        variables["LD_PRELOAD"] = " ".join(filter(None, [*ours, service.variable("LD_PRELOAD")]))
    if endpoint:
        variables["VGPU_ENDPOINT"] = endpoint
    lines = [f"Environment={_quoted(f'{key}={value}')}" for key, value in variables.items()]
    family = needed_family(service, reached)
    if family:
        lines += [
            f"# {unit} may use only certain sockets: this one reaches vgpud.",
            f"RestrictAddressFamilies={family}",
        ]
    return f"{_BY}[Service]\n" + "".join(f"{line}\n" for line in lines)


def needed_family(service: Service, endpoint: str) -> str:
    """The kind of socket that the unit forbids and the endpoint needs, "" if there is none.

    A drop-in can extend a list of allowed kinds; a list of forbidden ones (`~`) cannot be undone.
    """
    allowed: set[str] = set()
    for value in service.settings.get("RestrictAddressFamilies", []):
        if value.startswith("~") or value == "none":
            return ""
        allowed |= set(value.split())
    family = {"tcp": "AF_INET6" if "[" in endpoint else "AF_INET", "vsock": "AF_VSOCK"}.get(
        endpoint.partition(":")[0], "AF_UNIX"
    )
    return family if allowed and family not in allowed else ""


def _quoted(text: str) -> str:
    """Quoted for a unit file; specifiers in the unit's own value stay as they are."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _user(request: Request, layout: Layout, home: Path) -> list[Item]:
    folders = [str(home / layout.libraries), *(str(home / layout.runtime(major)) for major in request.runtimes)]
    endpoint = f"VGPU_ENDPOINT={request.endpoint}\n" if request.endpoint else ""
    path = ":".join(folders)
    session = f'{_BY}LD_LIBRARY_PATH="{path}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"\n{endpoint}'
    shell = (
        f"{_BY}# For a shell's profile: `. {home / USER_SHELL}`. Twice is as good as once.\n"
        f'case ":${{LD_LIBRARY_PATH-}}:" in\n*":{path}:"*) ;;\n'
        f'*) export LD_LIBRARY_PATH="{path}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" ;;\nesac\n'
        + (f"export {endpoint}" if endpoint else "")
    )
    return [_text(USER_SHELL, shell), _text(layout.endpoint, session)]


def _text(path: str, text: str, kind: str = "file", mode: int = 0o644) -> Item:
    content = text.encode()
    return Item(Entry(path, kind, mode, hashlib.sha256(content).hexdigest(), len(content)), content)


def _copy(path: str, source: Path, mode: int = 0o644) -> Item:
    digest, nbytes = hashlib.sha256(), 0
    for piece in Item(Entry(path, "file"), source).content():
        digest.update(piece)
        nbytes += len(piece)
    return Item(Entry(path, "file", mode, digest.hexdigest(), nbytes), source)


def is_plain_folder(path: Path) -> bool:
    """Whether a folder's name can stand in LD_LIBRARY_PATH and in the files that set it."""
    return not set(os.fspath(path)) & set(":;\"'`$\\\n ") and os.fspath(path).isprintable()
