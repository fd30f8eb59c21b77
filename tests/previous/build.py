"""The previous release, built from its commit: the version that old clients and old hosts still run."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.pypi import CACHE

COMMIT = "6a166fd"  # the last commit before clients named the feature `progress`
_TIMEOUT_S = 1200


def why_not(commit: str = COMMIT) -> str | None:
    """Why the commit cannot be built here; None if it can."""
    known = subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True)
    return f"this checkout's history has no {commit}" if known.returncode else None


def build(commit: str, target: Path) -> None:
    """Extract a commit into the new folder `target`, build guest library and executor. Raises CalledProcessError."""
    target.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "x", "-C", target], input=archive, check=True, timeout=_TIMEOUT_S)
    for command in (["-m", "protocol.gen"], ["shim/build.py"], ["daemon/executor/build_ffi.py"]):
        subprocess.run([sys.executable, *command], cwd=target, check=True, timeout=_TIMEOUT_S)


def previous() -> Path:
    """The previous release's tree, built once. Raises CalledProcessError."""
    CACHE.mkdir(parents=True, exist_ok=True)
    target = CACHE / f"previous-{COMMIT}"
    with (CACHE / f"previous-{COMMIT}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "built").exists():
            shutil.rmtree(target, ignore_errors=True)
            build(COMMIT, target)
            (target / "built").touch()
    return target


def environment(tree: Path) -> dict[str, str]:
    """Variables by which vgpud runs with the packages of `tree` instead of this checkout's."""
    return {"PYTHONPATH": f"{tree}/daemon:{tree}/guest:{tree}"}
