"""Markdown wraps at 100 columns. The changelog, to which every change adds lines, is wrapped at a release."""

import subprocess
from pathlib import Path

from tests.house.wrap_markdown import long_lines, wrapped

ROOT = Path(__file__).resolve().parents[2]


def documents() -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    return sorted(name for name in listing.split("\0") if name and name != "CHANGELOG.md" and (ROOT / name).is_file())


LONG_LINES = 20  # in all documents; lower the number when you wrap some


def test_no_line_is_longer_than_100_columns() -> None:
    found = {name: lines for name in documents() if (lines := long_lines((ROOT / name).read_text()))}
    assert sum(map(len, found.values())) <= LONG_LINES, f"python tests/house/wrap_markdown.py {' '.join(found)}"


def test_what_cannot_be_broken_is_left() -> None:
    text = (
        "| a table's row " + "x " * 60 + "|\n\n```\n" + "code " * 30 + "\n```\n\n# " + "heading " * 20 + "\n\n"
        "<https://example.com/" + "x" * 100 + ">\n"
    )
    assert wrapped(text) == text


def test_items_keep_their_indentation() -> None:
    text = "- " + "word " * 40 + "\n- `a code span stays whole` " + "word " * 20
    lines = wrapped(text).splitlines()
    assert all(len(line) <= 100 for line in lines)
    assert [line[:2] for line in lines] == ["- ", "  ", "  ", "- ", "  "]
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
