"""tests/again.py, on tests that are made for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHANCE = """
from pathlib import Path

def test_chance():
    with Path("seen").open("a") as file:
        file.write("x")
    assert Path("seen").stat().st_size > 1
"""
LATE = "def test_{}(): assert Path('seen').stat().st_size > 1\n"


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        (CHANCE, 0, True),
        (CHANCE + "def test_wrong(): assert 0\n", 1, False),
        (CHANCE + "".join(LATE.format(i) for i in range(3)), 1, False),
        (CHANCE + "def test_end():\n    import os\n    os._exit(7)\n", 7, False),
    ],
    ids=["chance", "one of two", "many", "no end"],
)
def test_what_passes_only_then_is_named(tmp_path: Path, text: str, code: int, named: bool) -> None:
    (tmp_path / "test_it.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, ROOT / "tests/again.py", "-q", "."], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("PASSED ONLY WHEN RUN AGAIN" in done.stdout) is named
    assert ("  test_it.py::test_chance\n" in done.stdout) is named
