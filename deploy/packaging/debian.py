"""Files from Debian's packages, unpacked without being installed."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from .cache import cache_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

_APT_TIMEOUT_S = 300


class DebianError(Exception):
    """Download failed; the text says why and what to do."""


def release_name() -> str:
    """This machine's release, as `bookworm` or `noble`; "" if unknown."""
    try:
        text = Path("/etc/os-release").read_text()
    except OSError:
        return ""
    found = re.search(r'^VERSION_CODENAME="?([a-z]+)', text, re.MULTILINE)
    return found[1] if found else ""


def fetch(names: Sequence[str]) -> dict[str, Path]:
    """Download packages of this machine's release, unless they are in the cache.

    Returns:
        The file of each package.
    Raises:
        DebianError: there is no apt, or it failed.
    """
    folder, empty = cache_folder("debs"), cache_folder("debs/none")
    # apt lists only files that it would download, so it is called in an empty folder to list all of them.
    uris = _apt(empty, "download", "--print-uris", *names)
    if uris is None and os.geteuid() == 0:  # a fresh container has no lists yet
        _apt(folder, "update")
        uris = _apt(empty, "download", "--print-uris", *names)
    if uris is None or _apt(folder, "download", *names) is None:
        raise DebianError(f"apt cannot download {' '.join(names)}: is there a network, and was `apt-get update` run?")
    files = {}
    for line in uris.splitlines():
        if found := re.match(r"'[^']+' (([^_ ]+)_[^ ]+\.deb)", line):
            files[found[2]] = folder / found[1]
    missing = [name for name in names if name not in files or not files[name].is_file()]
    if missing:
        raise DebianError(f"apt did not download {' '.join(missing)}")
    return files


def unpack(packages: Sequence[Path], folder: Path) -> None:
    """Extract the packages' files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages:
        subprocess.run(["dpkg-deb", "--extract", str(package), str(folder)], check=True, timeout=_APT_TIMEOUT_S)


def package_version(package: Path) -> str:
    """The version that the package's control file gives."""
    command = ["dpkg-deb", "--field", str(package), "Version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_APT_TIMEOUT_S)
    return result.stdout.strip()


def _apt(folder: Path, *arguments: str) -> str | None:
    """The output of apt-get; None if it failed."""
    # By default, apt run by root switches to a user who cannot write to this folder, and prints a warning.
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", *arguments]
    try:
        result = subprocess.run(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=_APT_TIMEOUT_S
        )
    except FileNotFoundError as error:
        raise DebianError("no apt-get: the bundle is made on Debian 12") from error
    return result.stdout if result.returncode == 0 else None
