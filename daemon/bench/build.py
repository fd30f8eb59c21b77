"""Compile the C program of `vgpu bench`: `python daemon/bench/build.py` puts it into vgpud/_lib/bench.

It calls whichever libcuda.so.1 the loader finds, so it needs only a C compiler.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "daemon/vgpud/_lib/bench/calls"
OPTIONS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]


def build(target: Path = TARGET) -> Path:
    """Compile it unless it is newer than its source; where it lies."""
    source = Path(__file__).with_name("vgb_calls.c")
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        target.parent.mkdir(parents=True, exist_ok=True)
        compiler = shlex.split(os.environ.get("CC", "cc"))
        subprocess.run([*compiler, *OPTIONS, "-o", str(target), str(source), "-ldl"], check=True)
    return target


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
