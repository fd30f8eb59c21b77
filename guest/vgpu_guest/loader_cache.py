"""The loader's cache of a tree: rebuilt by ldconfig, and searched for the files of a library name."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

from .manifest import CACHES

if TYPE_CHECKING:
    from .tree import Tree

_LDCONFIG = ("/sbin/ldconfig", "/usr/sbin/ldconfig")
_TIMEOUT_S = 60.0  # a slow disk with a million libraries
_LINE = re.compile(r"\s*(\S+) \(([^)]*)\) => (/.*)")


def refresh(tree: Tree) -> str:
    """Rebuild the cache; returns the error, or "". With -X, ldconfig creates no links beside other packages' libraries.
    For another root, this system's ldconfig runs with -r; no program of that root is executed.
    """
    status, output = _run(tree, "-X")
    return "" if status == 0 else output


def candidates(tree: Tree, soname: str) -> list[str]:
    """The 64-bit libraries that the cache has for a name, in the order in which the loader takes them."""
    _, output = _run(tree, "-p")
    found = []
    for line in output.splitlines():
        match = _LINE.fullmatch(line)
        if match and match[1] == soname and "x86-64" in match[2]:
            found.append(match[3])
    return found


def absent_caches(tree: Tree) -> tuple[str, ...]:
    """Files that ldconfig will create and that do not exist yet."""
    return tuple(path for path in CACHES if tree.status(path) is None)


def _run(tree: Tree, *options: str) -> tuple[int, str]:
    program = next((path for path in _LDCONFIG if os.access(path, os.X_OK)), None)
    if program is None:
        return 1, "there is no ldconfig"
    root = [] if tree.is_live else ["-r", str(tree.root)]
    try:
        result = subprocess.run(
            [program, *root, *options],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return result.returncode, result.stdout if result.returncode == 0 else result.stderr.strip()[-500:]
