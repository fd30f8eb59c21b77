"""A Python program without running it: which script or module a command line starts, and which packages it imports.

These functions run in the program's place, so they return what JSON can hold.
"""

from __future__ import annotations

import ast
import contextlib
import encodings.cp437  # noqa: F401 (of an archive's names: the place may be a root that holds no Python)
import os
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

from .process import read

_SOURCE_NBYTES = 1 << 20
_FILES_CAP = 64  # number of the program's own modules that are read
_LIBRARIES_CAP = 400  # number of libraries of one package
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})


def is_python(program: str) -> bool:
    """Whether a binary is an interpreter, by its name."""
    return re.fullmatch(r"python[\d.]*t?", os.path.basename(program)) is not None


def started(arguments: list[str]) -> dict[str, str]:
    """The program that an interpreter's arguments (without its own name) start: `kind` file, module, command or "", and
    `value`."""
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if joined := re.fullmatch(r"-[bBdEhiIOPqRsSuvVx]*([mc])(.*)", word, re.DOTALL):
            return {"kind": "module" if joined[1] == "m" else "command", "value": joined[2] or "".join(rest[:1])}
        if word in _WITH_VALUE and rest:
            rest.pop(0)
        elif not word.startswith("-"):
            return {"kind": "file", "value": word}
    return {"kind": "", "value": ""}


def examine(program: str, arguments: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Runs in the program's place. `imports` of the program and its own modules; `packages`: folder and libraries.

    `script` is the Python file that is run, `sites` are the interpreter's package folders.
    """
    what = started(arguments)
    sites = find_sites(program, environment)
    entry: Path | None = None
    source = ""
    if what["kind"] == "file":
        entry = Path(what["value"])
        if entry.is_dir():
            entry = entry / "__main__.py"
    elif what["kind"] == "module":
        entry = _find_module(what["value"], [Path.cwd(), *sites])
    elif what["kind"] == "command":
        source = what["value"]
    imports = _zipped(entry) if entry is not None and zipfile.is_zipfile(entry) else _imports(entry, source)
    packages = {}
    for name in imports:
        folder = next((site / name for site in sites if (site / name).is_dir()), None)
        if folder is not None:
            libraries = [str(file) for file in sorted(folder.rglob("*.so*")) if file.is_file()]
            packages[name] = {"folder": str(folder), "libraries": libraries[:_LIBRARIES_CAP]}
    return {
        **what,
        "script": str(entry) if entry is not None else "",
        "imports": sorted(imports),
        "packages": packages,
        "sites": [str(site) for site in sites],
    }


def find_sites(program: str, environment: dict[str, str]) -> list[Path]:
    """The folders in which an interpreter finds packages, without its standard library."""
    prefix = Path(program).parent.parent
    prefixes = [prefix, Path("/usr"), Path("/usr/local")] if str(prefix) in ("/", "/usr") else [prefix]
    found = [Path(entry) for entry in environment.get("PYTHONPATH", "").split(":") if entry]
    for base in prefixes:
        found += [site for kind in ("site", "dist") for site in sorted(base.glob(f"lib/python3*/{kind}-packages"))]
    home = environment.get("HOME", "")
    if home and not (prefix / "pyvenv.cfg").exists():
        found += sorted(Path(home).glob(".local/lib/python3*/site-packages"))
    return found


def site_names(program: str, environment: dict[str, str]) -> list[str]:
    """find_sites() as strings, which JSON can hold."""
    return [str(site) for site in find_sites(program, environment)]


def _find_module(name: str, folders: list[Path]) -> Path | None:
    parts = name.split(".")
    for folder in folders:
        base = folder.joinpath(*parts)
        for candidate in (base / "__main__.py", base.with_suffix(".py")):
            if candidate.is_file():
                return candidate
    return None


def _zipped(archive: Path) -> set[str]:
    """Top-level names that the modules of an archive (zipapp) import and the archive does not contain."""
    found: set[str] = set()
    try:
        with zipfile.ZipFile(archive) as opened:
            modules = [info for info in opened.infolist() if info.filename.endswith(".py")]
            own = {info.filename.partition("/")[0].removesuffix(".py") for info in modules}
            for info in modules[:_FILES_CAP]:
                with opened.open(info) as file:
                    text = file.read(_SOURCE_NBYTES).decode(errors="replace")
                with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                    found |= _imported(ast.parse(text))
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError):
        return set()
    return found - own


def _imports(entry: Path | None, source: str) -> set[str]:
    """Top-level names that the program and the modules beside it import."""
    found: set[str] = set()
    waiting: list[tuple[Path | None, str]] = [(entry, source)]
    seen: set[Path] = set()
    while waiting and len(seen) < _FILES_CAP:
        file, text = waiting.pop()
        if file is not None:
            if file in seen:
                continue
            seen.add(file)
            try:
                text = read(str(file), _SOURCE_NBYTES).decode(errors="replace")
            except OSError:
                continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        folder = file.parent if file is not None else Path.cwd()
        for name in _imported(tree):
            beside = _find_module(name, [folder])
            package = folder / name / "__init__.py"
            if beside is None and package.is_file():
                beside = package
            if beside is not None and "site-packages" not in beside.parts and "dist-packages" not in beside.parts:
                waiting.append((beside, ""))
            else:
                found.add(name)
    return found


def _imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
