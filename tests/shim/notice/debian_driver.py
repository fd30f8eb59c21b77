"""NVIDIA's own libcuda, from Debian's non-free archive: a package of 3 MB that is unpacked, not installed."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.pypi import CACHE

SOURCES = """Types: deb
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: non-free
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
TIMEOUT_S = 60


def _apt_get(folder: Path, *words: str) -> None:
    """apt-get with sources and lists of its own, so that the machine's stay as they are."""
    options = {
        "Dir::Etc::sourcelist": folder / "nvidia.sources",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
    }
    command = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in options.items()), *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=TIMEOUT_S)


def nvidia_libcuda() -> Path:
    """libcuda.so.1 as NVIDIA built it; skips, and says why, where it cannot be had."""
    if not shutil.which("apt-get") or not Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists():
        pytest.skip("NVIDIA's libcuda is fetched by Debian's apt-get, which is not here")
    target = CACHE / "debian-libcuda1"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".libcuda1.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            partial = target.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            for folder in ("lists/partial", "cache/archives/partial", "root"):
                (partial / folder).mkdir(parents=True)
            (partial / "nvidia.sources").write_text(SOURCES)
            try:
                _apt_get(partial, "update")
                _apt_get(partial, "download", "libcuda1")
                package = next(partial.glob("libcuda1_*.deb"))
                subprocess.run(["dpkg", "-x", str(package), str(partial / "root")], check=True, timeout=TIMEOUT_S)
            except (subprocess.SubprocessError, OSError, StopIteration) as error:
                pytest.skip(f"Debian's libcuda1 could not be fetched: {error}")
            (partial / "root").rename(target)
            shutil.rmtree(partial)
    return next(target.glob("usr/lib/*/nvidia/current/libcuda.so.1"))
