"""What is packaged: the version in file names, and the modification time of all files."""

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
    """Version and time of the source. The same commit gives the same values, and so the same packages."""

    version: str
    epoch_s: int  # Unix time: SOURCE_DATE_EPOCH, else the time of the commit

    @property
    def file_version(self) -> str:
        """The version for file names, without `~`, which shells expand to a home folder."""
        return self.version.replace("~", "-")


def describe_source(root: Path = ROOT) -> Source:
    """The source by git; in a source archive, without git, by its release number."""
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
    """The output of git; None if this is no checkout, or git fails, as for a folder that it does not trust."""
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
