"""ELF files made with the C compiler."""

from __future__ import annotations

import subprocess
from pathlib import Path


def compile_c(output: Path, source: str, *flags: str) -> Path:
    """Compile C text to `output`."""
    output.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-x", "c", "-", "-o", str(output), *flags], input=source.encode(), check=True, timeout=60)
    return output


def compile_library(output: Path, *flags: str, source: str = "int vgt_nothing;") -> Path:
    """A shared library; its soname is its file name."""
    return compile_c(output, source, "-shared", "-fPIC", f"-Wl,-soname,{output.name}", *flags)
