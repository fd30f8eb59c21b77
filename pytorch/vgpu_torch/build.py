"""The core library for the running torch: built by g++ at first use, then kept in a cache.

Torch's C++ interface is not stable between minor versions, so each version of torch has its own library.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent / "core"
_COMPILE_TIMEOUT_S = 900  # a compilation takes half a minute, several on a busy machine
_TAIL_CHARACTERS = 1500  # maximum length of the compiler's messages that are shown


class BuildError(Exception):
    """The core could not be built; the message says why and what to do."""


def cache_folder() -> Path:
    """The folder of built libraries; only its owner may write to it, because its files are loaded as code."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "vgpu-torch"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise BuildError(f"{folder} belongs to, or can be written by, someone else: set XDG_CACHE_HOME")
    return folder


def core_library() -> Path:
    """The path of the core library, which is built unless it exists.

    Raises:
        BuildError: there is no compiler, or it failed.
    """
    import torch

    digest = hashlib.sha256(f"{torch.__version__}\n{torch.version.git_version}".encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    stem = f"core-{torch.__version__}-{digest.hexdigest()[:16]}"
    shipped = Path(__file__).parent / f"{stem}.so"
    if shipped.exists():
        return shipped
    folder = cache_folder()
    target = folder / f"{stem}.so"
    if target.exists():
        return target
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _compile(target, Path(torch.__file__).parent)
    return target


def _compile(target: Path, torch_folder: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise BuildError("there is no C++ compiler to build vgpu-torch's core with: install g++")
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        partial = Path(scratch) / "core.so"
        command = [compiler, "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w"]
        command += [f"-I{torch_folder}/include", str(SOURCES / "core.cc"), "-o", str(partial)]
        command += [f"-L{torch_folder}/lib", "-ltorch_cpu", "-lc10", "-Wl,--allow-shlib-undefined"]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"vgpu-torch's core could not be built: {error}") from error
        if result.returncode:
            raise BuildError(f"vgpu-torch's core could not be built:\n{result.stderr[:_TAIL_CHARACTERS]}")
        partial.replace(target)
