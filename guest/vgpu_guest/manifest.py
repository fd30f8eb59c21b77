"""The manifest of an installation: the request, and every directory, file and link that was created.

It is written before the first file, so that an interrupted installation can be continued or undone. It may be in a tree
that another user controls: its contents are bounded and checked before use.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .endpoint_url import check_endpoint
from .layout import PROFILERS, RUNTIMES, SYSTEM, Layout, LayoutError, drop_in, unit_name

if TYPE_CHECKING:
    from .tree import Tree

FORMAT = 1
NBYTES_CAP = 1 << 20
_ENTRIES_CAP = 1024
_TEXT_CAP = 4096
_SHA256 = re.compile(r"[0-9a-f]{64}")
INSTALLING, INSTALLED = "installing", "installed"


class ManifestError(ValueError):
    """The manifest is damaged or has another version."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One installed entry of the tree."""

    path: str  # relative to the root
    kind: str  # "directory", "file", "link" or "configuration": a file that its owner may change
    mode: int = 0o755
    sha256: str = ""
    nbytes: int = 0
    target: str = ""  # target of a link
    pending: bool = False  # being installed: a file at this path is vgpu's only if it matches exactly


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that the user asked to have installed."""

    machine: bool = False  # for all programs, by the loader's configuration
    services: dict[str, str] = field(default_factory=dict)  # unit: its endpoint, "" for the machine's endpoint
    runtimes: tuple[str, ...] = ()
    endpoint: str = ""
    smi: str = ""  # the vgpu command that the installed nvidia-smi calls


@dataclass(frozen=True, slots=True)
class Manifest:
    """What `vgpu install` made."""

    state: str
    release: str
    request: Request
    entries: tuple[Entry, ...]
    # Files of the loader's cache that did not exist before ldconfig created them.
    caches: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """The file's content."""
        document = {
            "format": FORMAT,
            "state": self.state,
            "release": self.release,
            "request": {
                "machine": self.request.machine,
                "services": self.request.services,
                "runtimes": list(self.request.runtimes),
                "endpoint": self.request.endpoint,
                "smi": self.request.smi,
            },
            "entries": [_entry_document(entry) for entry in self.entries],
            "caches": list(self.caches),
        }
        return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def load_manifest(tree: Tree, layout: Layout = SYSTEM) -> Manifest | None:
    """The manifest in a tree; None where nothing is installed.

    Raises:
        ManifestError: it is damaged.
        TreeError: it cannot be read, or a link is in the way.
    """
    try:
        content = tree.read(layout.manifest, NBYTES_CAP)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ManifestError(str(error)) from error
    return decode(content, layout)


def decode(content: bytes, layout: Layout) -> Manifest:
    """Read a manifest's content. Raises ManifestError."""
    try:
        document = json.loads(content)
        if not isinstance(document, dict):
            raise ManifestError("is not an object")
        if document.get("format") != FORMAT:
            raise ManifestError(f"has format {str(document.get('format'))[:20]}, and this vgpu knows {FORMAT}")
        return _decode(document, layout)
    except ManifestError as error:
        raise ManifestError(f"/{layout.manifest} {error}: `vgpu repair` makes it anew") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ManifestError(f"/{layout.manifest} is damaged ({error}): `vgpu repair` makes it anew") from error


def _decode(document: dict[str, Any], layout: Layout) -> Manifest:
    state = _text(document["state"])
    if state not in (INSTALLING, INSTALLED):
        raise ManifestError(f"has the unknown state {state!r}")
    request = document["request"]
    services = {unit_name(_text(unit)): _endpoint(url) for unit, url in _items(request["services"])}
    runtimes = tuple(_text(major) for major in _list(request["runtimes"]))
    if not set(runtimes) <= set(RUNTIMES):
        raise ManifestError("names an unknown CUDA runtime")
    if not isinstance(request["machine"], bool):
        raise ManifestError("is damaged: machine is neither true nor false")
    entries = tuple(_entry(raw, layout) for raw in _list(document["entries"]))
    if len({entry.path for entry in entries}) != len(entries):
        raise ManifestError("names a path twice")
    caches = tuple(_text(path) for path in _list(document["caches"]))
    if not set(caches) <= set(CACHES):
        raise ManifestError("names an unknown cache")
    smi = _text(request.get("smi", ""), empty=True)
    if smi and not is_smi(smi):
        raise ManifestError("names an impossible vgpu")
    wanted = Request(request["machine"], services, runtimes, _endpoint(request["endpoint"]), smi)
    return Manifest(state, _text(document["release"]), wanted, entries, caches)


# Files and folders that ldconfig creates, the deepest first.
CACHES = ("etc/ld.so.cache", "var/cache/ldconfig/aux-cache", "var/cache/ldconfig", "var/cache")


def _entry(raw: Any, layout: Layout) -> Entry:
    path, kind, mode, pending = _text(raw["path"]), _text(raw["kind"]), raw["mode"], raw.get("pending", False)
    if kind not in ("directory", "file", "link", "configuration"):
        raise ManifestError(f"has an entry of the unknown kind {kind!r}")
    if not isinstance(pending, bool):
        raise ManifestError(f"is damaged: pending of {path} is neither true nor false")
    if not isinstance(mode, int) or not 0 <= mode <= 0o777:
        raise ManifestError(f"gives {path} an impossible mode")
    if not _is_ours(path, kind, layout):
        raise ManifestError(f"claims {path}, which no installation makes")
    if kind == "directory":
        return Entry(path, kind, mode, pending=pending)
    if kind == "link":
        target = _text(raw["target"])
        if "/" in target:
            raise ManifestError(f"has a link {path} out of its folder")
        return Entry(path, kind, mode, target=target, pending=pending)
    sha256, nbytes = _text(raw["sha256"]), raw["nbytes"]
    if not _SHA256.fullmatch(sha256) or not isinstance(nbytes, int) or not 0 <= nbytes < 1 << 40:
        raise ManifestError(f"has a bad hash or size of {path}")
    return Entry(path, kind, mode, sha256, nbytes, pending=pending)


def _is_ours(path: str, kind: str, layout: Layout) -> bool:
    """Whether an installation can have created this path: a damaged manifest must not lead to other files."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return False
    drop_ins = "etc/systemd/system"
    if layout is SYSTEM and path.startswith(f"{drop_ins}/") and _is_drop_in_folder(parts[3]):
        return len(parts) == 4 if kind == "directory" else path == drop_in(parts[3].removesuffix(".d"))
    files = [layout.manifest, layout.endpoint, layout.loader, layout.loader_runtimes]
    files += [layout.loader_profilers, layout.smi]
    known = [name for name in files if name is not None]
    if kind != "directory":
        return path in known or path.startswith(f"{layout.libraries}/")
    known += [f"{layout.runtime(major)}/x" for major in RUNTIMES]
    known += [f"{layout.profiler(major)}/x" for major in PROFILERS]
    known += [f"{drop_ins}/x"] if layout is SYSTEM else []
    return any(name.startswith(f"{path}/") for name in known)


def _is_drop_in_folder(name: str) -> bool:
    try:
        return name.endswith(".service.d") and unit_name(name.removesuffix(".d")) + ".d" == name
    except LayoutError:
        return False


def _entry_document(entry: Entry) -> dict[str, Any]:
    document: dict[str, Any] = {"path": entry.path, "kind": entry.kind, "mode": entry.mode}
    if entry.kind == "link":
        document["target"] = entry.target
    elif entry.kind != "directory":
        document |= {"sha256": entry.sha256, "nbytes": entry.nbytes}
    if entry.pending:
        document["pending"] = True
    return document


def is_smi(program: str) -> bool:
    """Whether a program's name needs no quoting in a shell script."""
    return re.fullmatch(r"vgpu|(/[A-Za-z0-9_.+@-]+)+", program) is not None


def _endpoint(value: Any) -> str:
    text = _text(value, empty=True)
    return check_endpoint(text) if text else ""


def _text(value: Any, *, empty: bool = False) -> str:
    if not isinstance(value, str) or len(value) > _TEXT_CAP or not (value or empty):
        raise ManifestError("is damaged: a text is missing or too long")
    if not value.isprintable():
        raise ManifestError("is damaged: a text has control characters")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > _ENTRIES_CAP:
        raise ManifestError("is damaged: a list is missing or too long")
    return value


def _items(value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(value, dict) or len(value) > _ENTRIES_CAP:
        raise ManifestError("is damaged: a map is missing or too long")
    return list(value.items())
