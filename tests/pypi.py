"""Packages from PyPI that tests run but vgpu does not depend on: each set in a folder of its own, kept between runs.

The folder is `$VGPU_TEST_CACHE`, else `~/.cache/vgpu-tests`. A set is installed once, under a lock of its own, and
appears complete or not at all. With VGPU_TEST_INSTALLED=1, for a machine that has packages and no network, each set is
what the running Python has, of whichever versions; a test that needs a package which that lacks is skipped.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("VGPU_TEST_CACHE") or Path.home() / ".cache/vgpu-tests")
INSTALL_TIMEOUT_S = 600
USED: set[tuple[Path, str]] = set()  # folder and first package of each set that was asked for (ecosystem/recorder.py)
INSTALLED = os.environ.get("VGPU_TEST_INSTALLED") == "1"
SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


def environment(*requirements: str, with_dependencies: bool = True, from_source: str = "") -> Path:
    """Make a virtual environment that holds `requirements`, unless it already exists.

    Args:
        from_source: name of the one package that has no wheel.
    Returns:
        The environment's folder; `bin/python` is an interpreter of the running Python's version.
    Raises:
        RuntimeError: pip failed; the message ends with pip's error output.
    """
    if INSTALLED:
        return installed(*requirements)
    key = "\n".join(
        [*sorted(requirements), str(with_dependencies), sys.implementation.cache_tag or "", sys.base_prefix]
    )
    name = name_of(requirements[0])
    target = CACHE / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    USED.add((target, name))
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return target
        print(f"installing {' '.join(requirements)} from PyPI into {CACHE}", file=sys.stderr, flush=True)
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        venv.create(partial, with_pip=False, symlinks=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command += ["--only-binary", ":all:", "--target", str(partial / SITE)]
        command += ["--no-binary", from_source] if from_source else []
        command += [] if with_dependencies else ["--no-deps"]
        result = subprocess.run([*command, *requirements], capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
        if result.returncode:
            raise RuntimeError(f"pip install {' '.join(requirements)} failed:\n{result.stderr[-2000:]}")
        partial.rename(target)
    return target


def name_of(requirement: str) -> str:
    """The name in a requirement, as `cupy` in `cupy[ctk]==14.*`."""
    return re.split(r"[=<>~!\[]", requirement)[0]


def installed(*requirements: str) -> Path:
    """The folder of the running Python's environment. Skips the test if this lacks one of the packages."""
    for name in map(name_of, requirements):
        try:
            distribution(name)
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed")
    USED.add((Path(sys.prefix), name_of(requirements[0])))
    return Path(sys.prefix)


def packages(*requirements: str) -> Path:
    """Install exactly `requirements`, without their dependencies; return the folder that holds their files."""
    return environment(*requirements, with_dependencies=False) / SITE
