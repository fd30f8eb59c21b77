"""`python tests/ecosystem/census.py [--sample N] [LIBRARY...]` updates docs/census.md's first table.

Libraries come from PyPI, as the tests of this folder install them; a library that is not named keeps its row.

    python3 tests/ecosystem/census.py --installed FILE.json [--jobs N] [--seconds S]

reads the libraries with device code that this Python has, with N processes until S seconds have passed, on a machine
that needs nothing but llvmlite, lz4 and zstandard; `--from FILE.json` then makes rows of them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import subprocess
import sys
import time
import traceback
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.ecosystem.requirements import CUBLAS_WITH_PTX, NPP, REQUIREMENTS  # noqa: E402
from tests.pypi import environment, packages  # noqa: E402

DOCUMENT = ROOT / "docs/census.md"
HEAD = """# Which kernels of other people's libraries would run

`python tests/ecosystem/census.py` writes this table. It takes kernels of each library at random,
the same ones each time, and compiles them as far as LLVM IR for the `forward` device
(`vgpu sim census`). A kernel that is refused ends its context with an error that names the
instruction. Rows of wheels that PyTorch 2.11 and JAX 0.11 install, and of the CUDA toolkit 13.0, were
read on a machine that has these (`--installed`, about 400 kernels of each). Absent are libraries
that carry no PTX, only machine code: cuFFT 12.0 and PyTorch's own.

| library | package | kernels read | would run | share | what stops the others | renewed |
|---|---|---|---|---|---|---|
"""
LIBRARIES = {
    **dict.fromkeys(("libcublas.so.13", "libcublasLt.so.13"), "cublas"),
    **dict.fromkeys(("libcufft.so.12", "libcurand.so.10", "libcusolver.so.12", "libcusparse.so.12"), "cupy"),
    **dict.fromkeys(("libcudnn_ops.so.9", "libcudnn_cnn.so.9", "libcudnn_adv.so.9"), "jax"),
    **dict.fromkeys(("libcudnn_engines_precompiled.so.9", "libnccl.so.2"), "jax"),
    **dict.fromkeys(("libnpps.so.13", "libnppial.so.13", "libnppif.so.13", "libnppig.so.13"), "npp"),
    "libxgboost.so": "xgboost",
    "libtensorflow_cc.so.2": "tensorflow",
    "warp.so": "warp",
}


Found = dict[str, Any]


def folder(name: str) -> Path:
    if name == "npp":
        return packages(*NPP)
    return environment(*(CUBLAS_WITH_PTX if name == "cublas" else REQUIREMENTS[name]))


def package_of(library: Path) -> str:
    """Name and version of the wheel that installed a file."""
    site = next((parent for parent in library.parents if parent.name == "site-packages"), None)
    if site is None:
        return "CUDA toolkit"
    name = str(library.relative_to(site))
    for record in site.glob("*.dist-info/RECORD"):
        if f"\n{name}," in f"\n{record.read_text()}":
            return record.parent.name.removesuffix(".dist-info").replace("-", " ").replace("_", "-")
    return "?"


def row(name: str, sample: int) -> str:
    library = next(folder(LIBRARIES[name]).rglob(name))
    vgpu = Path(sys.executable).parent / "vgpu"
    command = [str(vgpu), "sim", "census", "--json", f"--sample={sample}", str(library)]
    (found,) = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    return _row(name, package_of(library), found)


def _row(name: str, package: str, found: Found) -> str:
    read, accepted = found["read"], found["accepted"]
    refused = ", ".join(f"`{reason}` {count}" for reason, count in found["refused"].items())
    if found["unreadable"]:
        refused = (
            f"{refused}{', ' if refused else ''}{sum(found['unreadable'].values())} modules are parts of a program"
        )
    share = f"{100 * accepted / read:.1f} %" if read else "-"
    day = datetime.now(UTC).date().isoformat()
    return f"| {name} | {package} | {read} | {accepted} | {share} | {refused} | {day} |"


def rows_of(source: Path) -> dict[str, str]:
    """Rows of what --installed has found: libraries with PTX, each once."""
    found = json.loads(source.read_text())
    usual = {name: each for name, each in found.items() if each.get("read") and each["package"] != "CUDA toolkit"}
    for name, each in found.items():
        stem = name.split(".so")[0]
        if each.get("read") and not any(other.split(".so")[0] == stem for other in usual):
            usual[name] = each
    return {name: _row(name, each["package"], each) for name, each in usual.items()}


def installed() -> list[Path]:
    """The libraries that hold fat binaries, in site-packages and beside the CUDA compiler, each name once."""
    found: dict[str, Path] = {}
    for folder in [Path(entry) for entry in sys.path if entry.endswith("site-packages")] + [Path("/usr/local/cuda")]:
        for path in sorted(folder.rglob("*.so*")):
            is_library = path.is_file() and not path.is_symlink() and path.stat().st_size > 1 << 20
            if is_library and any(name in path.read_bytes() for name in (b"__nv_relfatbin", b".nv_fatbin")):
                found.setdefault(path.name, path)
    return list(found.values())


def _part(job: tuple[str, int, int, int, float]) -> Found:
    """Read a part of a library, unless the time is over."""
    from vgpusim import census  # a row needs no simulator

    path, first, parts, sample, end = job
    name = Path(path).name
    if time.time() > end:
        return {"file": name, "late": 1}
    begin = time.time()
    try:
        taken = census.take(Path(path), (13, 0), sample, (first, parts))
    except Exception:
        return {"file": name, "error": traceback.format_exc()[-600:]}
    return {**vars(taken), "seconds": round(time.time() - begin, 1)}


def read_installed(out: Path, jobs: int, seconds: float, sample: int, parts: int = 8) -> None:
    """Read `sample` kernels of each library in parts; first parts first, so that the end of the time is shared."""
    end = time.time() + seconds
    paths = installed()
    each = -(-sample // parts)
    asked = [(str(path), part, parts, each, end - 30) for part in range(parts) for path in paths]
    sums: dict[str, Found] = {
        path.name: {"package": package_of(path), "refused": {}, "unreadable": {}} for path in paths
    }
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=8) as pool:
        results = pool.imap_unordered(_part, asked, chunksize=1)
        for _ in asked:
            try:
                found = results.next(timeout=max(1.0, end - time.time()))
            except multiprocessing.TimeoutError:
                print("the time is over", flush=True)
                break
            into = sums[found["file"]]
            for key, value in found.items():
                if isinstance(value, int | float):
                    into[key] = into.get(key, 0) + value
                elif isinstance(value, dict):
                    into[key] = dict(Counter(into[key]) + Counter(value))
                elif key == "error":
                    into[key] = value
            for key in ("containers", "modules"):  # each part counts all
                if key in found:
                    into[key] = found[key]
            out.write_text(json.dumps(sums, indent=1))
        pool.terminate()
    for name, into in sums.items():
        print(f"{name}: {into.get('accepted', 0)} of {into.get('read', 0)} {into['refused']} {into['unreadable']} "
              f"{into.get('error', '')[-100:]}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--installed", type=Path, metavar="FILE.json")
    parser.add_argument("--from", type=Path, metavar="FILE.json", dest="source")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("libraries", nargs="*", help=f"of {', '.join(LIBRARIES)}")
    options = parser.parse_args()
    if options.installed:
        read_installed(options.installed, options.jobs, options.seconds, options.sample)
        return
    text = DOCUMENT.read_text() if DOCUMENT.exists() else ""
    rest = text[text.index("\n## ") :] if "\n## " in text else ""
    rows = {name: row for row, name in re.findall(r"^(\| (\S+\.so\S*) \|.*)$", text.removesuffix(rest), re.MULTILINE)}
    named = options.libraries or ([] if options.source else LIBRARIES)
    if options.source:
        rows |= rows_of(options.source)
    for name in named:
        rows[name] = row(name, options.sample)
        print(rows[name], flush=True)
    DOCUMENT.write_text(HEAD + "".join(f"{row}\n" for row in rows.values()) + rest)


if __name__ == "__main__":
    main()
