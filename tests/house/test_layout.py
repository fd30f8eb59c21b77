"""A file holds one idea: 600 lines are the ceiling."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CEILING = 600
SOURCES = ("*.py", "*.c", "*.h", "*.cu")
COLUMNS = 120
# A remark for a tool must stand in the line that it is about; a target's help is one line of the Makefile.
REMARK = re.compile(r"\s*#\s*(?:type: ignore|noqa|fmt:).*$|^[\w-]+:.* ## .*$")


def tracked_sources(*patterns: str) -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", *(patterns or SOURCES)], cwd=ROOT, capture_output=True, check=True, text=True
    )
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).exists()]


def test_no_file_is_longer_than_the_ceiling() -> None:
    if not (ROOT / ".git").exists():
        pytest.fail("the layout check needs a git checkout")
    lengths = {path.relative_to(ROOT): path.read_text().count("\n") for path in tracked_sources()}
    assert len(lengths) > 0
    assert {str(path): count for path, count in lengths.items() if count > CEILING} == {}


def test_no_line_is_longer_than_120_columns() -> None:
    """Markdown has a limit of its own (test_markdown.py)."""
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked_sources(*SOURCES, "*.cc", "*.pyi", "*.sh", "*.toml", "Makefile")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(REMARK.sub("", line)) > COLUMNS
    ]
    assert long == []


def _reads_the_wall_clock(text: str) -> bool:
    return "CLOCK_REALTIME" in text


@pytest.mark.control("AT21")
def test_AT21_control_a_deadline_by_the_clock_on_the_wall_is_found() -> None:
    assert _reads_the_wall_clock("clock_gettime(CLOCK_REALTIME, &deadline);")
    assert not _reads_the_wall_clock("clock_gettime(CLOCK_MONOTONIC, &deadline);")


def test_AT21_no_deadline_follows_the_clock_on_the_wall() -> None:
    """When somebody sets the clock back, a wait of two seconds could take an hour."""
    parts = (ROOT / "daemon", ROOT / "shim", ROOT / "protocol")
    sources = [
        each for each in tracked_sources() if each.suffix in (".c", ".h") and any(map(each.is_relative_to, parts))
    ]
    assert sources
    stamps = {"vgs_cupti_clock.c"}  # profiles hold wall-clock times; the file waits for nothing
    found = [path.name for path in sources if _reads_the_wall_clock(path.read_text()) and path.name not in stamps]
    assert found == []


def test_each_file_format_has_one_reader() -> None:
    """In Python; the C code reads no ELF, and of fat binaries only where they end (vgs_image.c)."""
    parts = (ROOT / "daemon", ROOT / "guest", ROOT / "pytorch", ROOT / "protocol")
    sources = [each for each in tracked_sources() if each.suffix == ".py" and any(map(each.is_relative_to, parts))]
    for magic, reader in ((r"\x7fELF", "elf.py"), ("0xBA55ED50", "fatbin.py")):
        assert [path.name for path in sources if magic.lower() in path.read_text().lower()] == [reader]
