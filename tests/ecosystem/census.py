"""`python tests/ecosystem/census.py [--sample N] [LIBRARY...]` updates docs/census.md's first table.

Libraries come from PyPI, as the tests of this folder install them; a library that is not named keeps its row.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.ecosystem.requirements import CUBLAS_WITH_PTX, NPP, REQUIREMENTS  # noqa: E402
from tests.pypi import environment, packages  # noqa: E402

DOCUMENT = ROOT / "docs/census.md"
HEAD = """# Which kernels of other people's libraries would run

`python tests/ecosystem/census.py` writes this table. It takes kernels of each library at random,
the same ones each time, and compiles them as far as LLVM IR for the `forward` device
(`vgpu sim census`). A kernel that is refused ends its context with an error that names the
instruction.

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


def folder(name: str) -> Path:
    if name == "npp":
        return packages(*NPP)
    return environment(*(CUBLAS_WITH_PTX if name == "cublas" else REQUIREMENTS[name]))


def package_of(library: Path) -> str:
    """Name and version of the wheel that installed a file."""
    site = next(parent for parent in library.parents if parent.name == "site-packages")
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
    read, accepted = found["read"], found["accepted"]
    refused = ", ".join(f"`{reason}` {count}" for reason, count in found["refused"].items())
    share = f"{100 * accepted / read:.1f} %" if read else "-"
    day = datetime.now(UTC).date().isoformat()
    return f"| {name} | {package_of(library)} | {read} | {accepted} | {share} | {refused} | {day} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("libraries", nargs="*", help=f"of {', '.join(LIBRARIES)}")
    options = parser.parse_args()
    text = DOCUMENT.read_text() if DOCUMENT.exists() else ""
    rows = {name: row for row, name in re.findall(r"^(\| (\S+) \|.*)$", text, re.MULTILINE)}
    for name in options.libraries or LIBRARIES:
        rows[name] = row(name, options.sample)
        print(rows[name], flush=True)
    rest = text[text.index("\n## ") :] if "\n## " in text else ""
    DOCUMENT.write_text(HEAD + "".join(f"{rows[name]}\n" for name in LIBRARIES if name in rows) + rest)


if __name__ == "__main__":
    main()
