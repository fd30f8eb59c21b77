"""Are the files of `vgpu install` unchanged? The manifest shows changes by updates or by users."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..installer import Installer
from ..layout import SYSTEM
from ..manifest import INSTALLED, ManifestError
from ..tree import Tree
from .place import PlaceError, ask

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .subject import Subject

_TIMEOUT_S = 20.0  # hashing 20 MB on a slow disk


def check(subject: Subject, diagnosis: Diagnosis) -> None:
    """Adds library-drift, or only a note if cuInit works nevertheless."""
    try:
        found: dict[str, Any] = ask(subject.place.as_administrator(), _differences, timeout_s=_TIMEOUT_S)
    except PlaceError as error:
        diagnosis.warnings.append(f"the installation was not checked: {error}")
        return
    if not found["differences"]:
        return
    more = len(found["differences"]) - 1
    text = found["differences"][0] + (f", and {more} more" if more else "")
    bound = {str(entry.get("real")) for entry in diagnosis.libraries.values()}
    damaged = [line for line in found["differences"] if line.partition(" ")[0] in bound]
    if diagnosis.proven and not damaged:
        diagnosis.warnings.append(f"{text}: `sudo vgpu repair` puts it back")
    else:
        diagnosis.add("library-drift", damaged[0] if damaged else text, "sudo vgpu repair")
    diagnosis.evidence += [f"  changed: {line}" for line in found["differences"][1:8]]


def _differences() -> dict[str, Any]:
    """Runs in the program's place: the differences from the manifest."""
    try:
        with Tree(Path("/")) as tree:
            installer = Installer(tree, SYSTEM)
            manifest = installer.manifest()
            if manifest is None:
                return {"differences": []}
            differences = [str(finding) for finding in installer.findings(manifest)]
            if manifest.state != INSTALLED:
                differences.insert(0, "`vgpu install` was interrupted")
    except (ManifestError, OSError) as error:
        return {"differences": [str(error)]}
    return {"differences": differences}
