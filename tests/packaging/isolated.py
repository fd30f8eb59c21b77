"""Run a command as on a machine that lacks some of this one's software: hidden folders, an empty environment."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 100


def unshare_command() -> list[str]:
    """The command prefix that enters a new mount namespace, as root there."""
    return ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]


def why_not() -> str | None:
    """Why this machine cannot make a mount namespace; None if it can."""
    try:
        tried = subprocess.run([*unshare_command(), "true"], capture_output=True, text=True, timeout=TIMEOUT_S)
    except FileNotFoundError:
        return "no unshare on this machine (util-linux)"
    return None if tried.returncode == 0 else f"no mount namespace to be had: {tried.stderr.strip()}"


def python_and_checkout() -> list[Path]:
    """The folders of every Python of this machine, and this checkout with its build outputs."""
    folders = [ROOT, Path(sys.prefix), Path(sys.base_prefix), Path("/usr/local"), *Path("/usr/lib").glob("python3*")]
    return [folder for folder in folders if folder.is_dir() and folder != Path("/usr")]


def run_without(
    hidden: Sequence[Path], command: Sequence[str | Path], env: Mapping[str, str], cwd: Path = Path("/")
) -> CompletedProcess[str]:
    """Run a command where the folders `hidden` are empty, with `env` as its whole environment."""
    script = 'n=$1; shift; while [ $n -gt 0 ]; do mount -t tmpfs none "$1"; shift; n=$((n-1)); done; exec "$@"'
    quiet = ["env", "-i", *(f"{key}={value}" for key, value in env.items()), *map(str, command)]
    # A folder inside another hidden folder is hidden with it.
    outermost = [str(folder) for folder in hidden if not any(other in folder.parents for other in hidden)]
    arguments = ["sh", "-ec", script, "sh", str(len(outermost)), *outermost, *quiet]
    return subprocess.run([*unshare_command(), *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, cwd=cwd)
