"""The checks of the cursor and of the ring's indices, each tested by a C program (vgt_cursor.c, vgt_ring.c)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INCLUDES = [f"-I{ROOT / name}" for name in ("daemon/executor", "protocol/c", "build/gen")]


@pytest.mark.parametrize("program", ["vgt_cursor.c", "vgt_ring.c"])
def test_checks_of(program, tmp_path) -> None:
    binary = tmp_path / "program"
    flags = ["-std=gnu11", "-O1", "-fsanitize=address,undefined", "-pthread"]
    subprocess.run(["gcc", *flags, *INCLUDES, str(ROOT / "tests/protocol" / program), "-o", str(binary)], check=True)
    subprocess.run([binary], check=True, timeout=60)
