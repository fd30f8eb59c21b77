"""What is being packaged: the version that file names carry, and the one time that all files get."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_GIT_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Source:
    """The same commit gives the same `Source`, and so the same packages."""

    version: str
    epoch_s: int  # since 1970: SOURCE_DATE_EPOCH, else the commit's time

    @property
    def file_version(self) -> str:
        """The version as part of a file's name: shells take `~` for a home."""
        return self.version.replace("~", "-")


def describe_source(root: Path = ROOT) -> Source:
    """Ask git; a source archive has none, and is the release it says it is."""
    text = (root / "daemon/vgpud/__init__.py").read_text()
    found = re.search(r'__version__ = "([0-9][0-9a-z.]*)"', text)
    if found is None:
        raise ValueError("daemon/vgpud/__init__.py has no __version__")
    release, given = found[1], os.environ.get("SOURCE_DATE_EPOCH")
    commit = _git(root, "log", "-1", "--format=%ct %h %cd", "--abbrev=8", "--date=format-local:%Y%m%d%H%M")
    if commit is None:
        return Source(release, int(given) if given else int((root / "pyproject.toml").stat().st_mtime))
    time_s, short, stamp = commit.split()
    if _git(root, "tag", "--points-at", "HEAD", "--list", f"v{release}"):
        version = release
    else:  # `~` sorts before the release itself (deb-version(7)), the time orders commits
        version = f"{release}~git{stamp}.{short}"
    if _git(root, "status", "--porcelain", "--untracked-files=no"):
        version += "+changed"
    return Source(version, int(given or time_s))


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints; None if this is no checkout, or one that git does not trust."""
    if not (root / ".git").exists():
        return None
    environment = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}
    try:
        result = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
            env=environment,
        )
    except FileNotFoundError:
        return None
    return result.stdout.strip() if result.returncode == 0 else None
