"""Compile the C program of `vgpu bench`: `python daemon/bench/build.py` puts it into build/guest/bench.

It calls whichever libcuda.so.1 the loader finds, so it needs only a C compiler.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "shim"))

from native import LIBRARIES, Toolchain, run  # noqa: E402


def build() -> None:
    """Compile the program if a source has changed."""
    toolchain = Toolchain.from_environment()
    toolchain.program(Path(__file__).with_name("vgb_calls.c"), LIBRARIES / "bench/calls", toolchain.objects("bench"))


if __name__ == "__main__":
    sys.exit(run("daemon/bench/build.py", build))
