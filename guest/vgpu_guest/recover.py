"""A manifest rebuilt from the tree after it was lost or damaged: the files that only an installation can have created.
They are recognised by paths that only vgpu uses, and by the first line that `vgpu install` writes. The caller adopts
them unchanged; `vgpu repair` then corrects what differs.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from typing import TYPE_CHECKING

from .endpoint_url import EndpointError, check_endpoint
from .guest_conf import parse
from .layout import (
    PROBE,
    PROFILERS,
    RELEASE,
    RUNTIMES,
    STEMS,
    SYSTEM,
    USER_SHELL,
    Layout,
    LayoutError,
    drop_in,
    unit_name,
)
from .manifest import INSTALLED, Entry, Manifest, Request

if TYPE_CHECKING:
    from .tree import Tree

_UNITS = "etc/systemd/system"
_MARK = b"`vgpu install`"
_CONF_MARK = b"written by `vgpu install --endpoint`"
_TEXT_CAP = 1 << 16
_PIECE_NBYTES = 1 << 20


def recover(tree: Tree, layout: Layout) -> Manifest | None:
    """The manifest of the files found; None if there are no files of an installation."""
    entries: dict[str, Entry] = {}
    runtimes = _libraries(tree, layout, entries)
    request = Request(
        machine=layout is not SYSTEM,
        services=_services(tree, layout, entries),
        runtimes=runtimes,
        endpoint=_endpoint(tree, layout, entries),
        smi=_smi(tree, layout, entries),
    )
    if layout.loader and _take_text(tree, layout.loader, entries):
        request = _with_machine(request)
    for conf in filter(None, (layout.loader_runtimes, layout.loader_profilers)):
        _take_text(tree, conf, entries)
    if layout is not SYSTEM:
        _take_text(tree, USER_SHELL, entries)
    if not entries:
        return None
    _folders(tree, layout, entries)
    ordered = sorted(entries.values(), key=lambda entry: (entry.kind != "directory", entry.path))
    return Manifest(INSTALLED, RELEASE, request, tuple(ordered))


def _with_machine(request: Request) -> Request:
    return Request(True, request.services, request.runtimes, request.endpoint, request.smi)


def _libraries(tree: Tree, layout: Layout, entries: dict[str, Entry]) -> tuple[str, ...]:
    for name in tree.names_if_any(layout.libraries):
        if name == PROBE or any(re.fullmatch(rf"{re.escape(stem)}\.so(\.[0-9.]+)?", name) for stem in STEMS):
            _take(tree, f"{layout.libraries}/{name}", entries)
    found = []
    for major, soname in RUNTIMES.items():
        if _take(tree, f"{layout.runtime(major)}/{soname}", entries):
            found.append(major)
    for major, soname in PROFILERS.items():
        _take(tree, f"{layout.profiler(major)}/{soname}", entries)
    return tuple(found)


def _services(tree: Tree, layout: Layout, entries: dict[str, Entry]) -> dict[str, str]:
    services: dict[str, str] = {}
    for folder in tree.names_if_any(_UNITS) if layout is SYSTEM else []:
        try:
            unit = unit_name(folder.removesuffix(".d"))
            path = drop_in(unit)
        except LayoutError:
            continue
        if path.startswith(f"{_UNITS}/{folder}/") and _take_text(tree, path, entries):
            found = re.search(r'VGPU_ENDPOINT=([^"\s]+)', _text(tree, path).decode(errors="replace"))
            services[unit] = _checked(found[1] if found else "")
    return services


def _endpoint(tree: Tree, layout: Layout, entries: dict[str, Entry]) -> str:
    text = _text(tree, layout.endpoint)
    if not (_CONF_MARK in text or (layout is not SYSTEM and _MARK in text)):
        return ""
    _take(tree, layout.endpoint, entries, kind="configuration" if layout is SYSTEM else "file")
    if layout is SYSTEM:
        return _checked(parse(text.decode(errors="replace")).values.get("endpoint", ""))
    found = re.search(r"^VGPU_ENDPOINT=(\S+)", text.decode(errors="replace"), re.MULTILINE)
    return _checked(found[1] if found else "")


def _smi(tree: Tree, layout: Layout, entries: dict[str, Entry]) -> str:
    if layout.smi is None or not _take_text(tree, layout.smi, entries):
        return ""
    found = re.search(r"^exec (\S+) smi ", _text(tree, layout.smi).decode(errors="replace"), re.MULTILINE)
    return found[1] if found else ""


def _checked(url: str) -> str:
    try:
        return check_endpoint(url) if url else ""
    except EndpointError:
        return ""


def _take_text(tree: Tree, path: str, entries: dict[str, Entry]) -> bool:
    """Take over a file that has vgpu's mark in its first 200 bytes."""
    return _MARK in _text(tree, path)[:200] and _take(tree, path, entries)


def _take(tree: Tree, path: str, entries: dict[str, Entry], kind: str = "file") -> bool:
    status = tree.status(path)
    if status is None:
        return False
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if stat.S_ISLNK(status.st_mode):
        target = tree.read_link(path)
        if "/" in target:
            return False
        entries[path] = Entry(path, "link", 0o777, target=target)
    elif stat.S_ISREG(status.st_mode):
        digest = hashlib.sha256()
        with tree.open(path) as fd:
            while piece := os.read(fd, _PIECE_NBYTES):
                digest.update(piece)
        entries[path] = Entry(path, kind, mode, digest.hexdigest(), status.st_size)
    else:
        return False
    return True


def _folders(tree: Tree, layout: Layout, entries: dict[str, Entry]) -> None:
    """Add the folders of the files found. A folder with other contents is safe: only empty folders are removed."""
    folders = {layout.libraries, layout.runtimes, *(layout.runtime(major) for major in RUNTIMES)}
    folders |= {f"{layout.libraries}/cupti", *(layout.profiler(major) for major in PROFILERS)}
    folders |= {os.path.dirname(layout.manifest)}
    folders |= {os.path.dirname(path) for path in entries if path.startswith(f"{_UNITS}/") or path == layout.endpoint}
    for folder in sorted(folders):
        status = tree.status(folder)
        if status is not None and stat.S_ISDIR(status.st_mode):
            entries[folder] = Entry(folder, "directory", stat.S_IMODE(status.st_mode) & 0o777)


def _text(tree: Tree, path: str) -> bytes:
    try:
        return tree.read(path, _TEXT_CAP)
    except (OSError, ValueError):
        return b""
