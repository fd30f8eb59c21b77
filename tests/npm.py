"""Packages from npm that hold compiled CUDA programs: each in a folder of its own, kept between runs (see pypi.py)."""

import fcntl
import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.pypi import CACHE, INSTALL_TIMEOUT_S


def npm_package(name: str, version: str) -> Path:
    """Download one package, without its dependencies, unless it is already there.

    Returns:
        The folder that holds its files.
    Raises:
        RuntimeError: npm is missing, or npm failed; the message holds its error output.
    """
    target = CACHE / f"npm-{name.strip('@').replace('/', '-')}-{version}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return target
        npm = shutil.which("npm")
        if npm is None:
            raise RuntimeError("npm is needed to download a client: apt-get install npm")
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        command = [npm, "pack", "--silent", f"{name}@{version}"]
        result = subprocess.run(command, cwd=partial, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
        if result.returncode:
            raise RuntimeError(f"npm pack {name}@{version} failed:\n{result.stderr[-2000:]}")
        (archive,) = partial.glob("*.tgz")
        with tarfile.open(archive) as files:
            if hasattr(tarfile, "data_filter"):  # since Python 3.11.4; Debian 12 has 3.11.2
                files.extraction_filter = tarfile.data_filter
            files.extractall(partial)
        archive.unlink()
        (partial / "package").rename(target)
        shutil.rmtree(partial)
    return target
