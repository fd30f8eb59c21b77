"""Whether a program gets vgpu-torch, and how its Python finds the package.

Only torch reads its entry point, so the package is harmless on the path of other Python programs. It is left out where
the program's Python is known and has no torch.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from vgpu_guest.preload import resolve_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDER = "torch"  # beside libcuda.so.1; pytorch/build.py fills it
_PYTHON = re.compile(r"python(\d(\.\d+)?)?t?$")
_SITES = ("lib/python3*/site-packages", "lib/python3/dist-packages", "local/lib/python3*/dist-packages")


def is_wanted(program: str, environment: Mapping[str, str]) -> bool:
    """False only if `program` is Python or a Python script, and that Python has no torch."""
    path = environment.get("PATH", os.defpath)
    binary = resolve_program(program, path)
    if binary is None or not (_PYTHON.match(binary.name) or _PYTHON.match(binary.resolve().name)):
        return True  # a shell, make, ...: it may start any Python
    named = shutil.which(program, path=path)
    sites = list(_sites({named, str(binary)}, environment))
    return any((site / "torch/version.py").is_file() or _leads_elsewhere(site) for site in sites)


def _leads_elsewhere(site: Path) -> bool:
    """Whether a .pth file adds folders of packages: one that has torch, or some that only Python itself would find."""
    lines = [line for file in site.glob("*.pth") for line in _text(file).splitlines()]
    return any(
        "addsitedir" in line or "sys.path" in line
        if line.startswith("import")
        else line.strip() and not line.startswith("#") and (site / line.strip() / "torch/version.py").is_file()
        for line in lines
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def _sites(programs: set[str | None], environment: Mapping[str, str]) -> Iterator[Path]:
    """The folders where a Python's packages may be, found without running it."""
    for entry in environment.get("PYTHONPATH", "").split(":"):
        if entry:
            yield Path(entry)
    files = [Path(program) for program in programs if program is not None]
    for prefix in dict.fromkeys(file.parent.parent for program in files for file in (program, program.resolve())):
        for pattern in _SITES:
            yield from prefix.glob(pattern)
    if "HOME" in environment:
        yield from Path(environment["HOME"]).glob(".local/lib/python3*/site-packages")


def put_on_path(environment: dict[str, str], library_directory: Path) -> bool:
    """Append the package's folder to PYTHONPATH, where it hides no other package; False if the folder is missing."""
    folder = library_directory / FOLDER
    if not folder.is_dir():
        return False
    rest = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{rest}:{folder}" if rest else str(folder)
    return True
