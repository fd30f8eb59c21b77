"""Links between the documents resolve: the file is there, and so is the heading that it names."""

import re
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]+))?\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")


def documents() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", path.read_text()), re.MULTILINE)
    return set(map(anchor, headings))


def broken(path: Path) -> list[str]:
    found = []
    for target, heading in LINK.findall(CODE.sub("", FENCED.sub("", path.read_text()))):
        there = path.parent / target if target else path
        if not there.exists() or (heading and there.suffix == ".md" and heading not in anchors(there)):
            found.append(f"{path.name}: {target}{'#' if heading else ''}{heading}")
    return found


def test_links_resolve() -> None:
    assert [line for path in documents() for line in broken(path)] == []


def test_a_missing_file_and_a_missing_heading_are_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# One `x`: two\n\n```\n# no heading\n```\n")
    links = "[](b.md) [](b.md#one-x-two) [](#here) [](https://e.org/#x) `[](c.md)`\n\n# Here\n"
    (tmp_path / "a.md").write_text(links + "[](c.md) [](b.md#no-heading)\n")
    assert broken(tmp_path / "a.md") == ["a.md: c.md", "a.md: b.md#no-heading"]
