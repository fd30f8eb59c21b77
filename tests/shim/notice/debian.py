"""Debian packages that are unpacked, not installed: NVIDIA's own libcuda (3 MB, non-free), and programs whose
installation would start services.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.pypi import CACHE

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SOURCES = f"""Types: deb
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main non-free
Signed-By: {KEYRING}
"""
TIMEOUT_S = 60


def _apt_get(folder: Path, *words: str) -> None:
    """Run apt-get with its own sources and lists, so that the machine's lists stay unchanged."""
    options = {
        "Dir::Etc::sourcelist": folder / "debian.sources",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
    }
    command = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in options.items()), *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=TIMEOUT_S)


def unpacked(*packages: str) -> Path:
    """The folder with the packages' files; skips with the reason if they cannot be downloaded."""
    if not shutil.which("apt-get") or not KEYRING.exists():
        pytest.skip(f"{' '.join(packages)}: fetched by Debian's apt-get, which is not here")
    target = CACHE / f"debian-{packages[0]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".debian.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            partial = target.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            for folder in ("lists/partial", "cache/archives/partial", "root"):
                (partial / folder).mkdir(parents=True)
            (partial / "debian.sources").write_text(SOURCES)
            try:
                _apt_get(partial, "update")
                _apt_get(partial, "download", *packages)
                for package in partial.glob("*.deb"):
                    subprocess.run(["dpkg", "-x", str(package), str(partial / "root")], check=True, timeout=TIMEOUT_S)
            except (subprocess.SubprocessError, OSError) as error:
                pytest.skip(f"Debian's {' '.join(packages)} could not be fetched: {error}")
            (partial / "root").rename(target)
            shutil.rmtree(partial)
    return target


def nvidia_libcuda() -> Path:
    """libcuda.so.1 as NVIDIA built it."""
    return next(unpacked("libcuda1").glob("usr/lib/*/nvidia/current/libcuda.so.1"))
