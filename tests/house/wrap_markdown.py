"""Wrap Markdown at 100 columns: `python tests/house/wrap_markdown.py FILE…`; test_markdown.py checks the width.

A paragraph or list item with a longer line is wrapped again; tables, fenced blocks, headings, comments and lines that
cannot be broken stay as they are.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

COLUMNS = 100
ITEM = re.compile(r"\s*(?:[-*]|\d+\.) +")
WHOLE = re.compile(r"\s*(?:\||#|<!--|\[[^\]]+\]: )")
# Code spans, links' targets and HTML tags stay on one line.
WORD = re.compile(r"(?:`[^`]*`|\[[^\]]*\]\([^)]*\)|[^\s`\[]|\[|`)+")


def is_long(line: str) -> bool:
    """Whether the line is longer than it may be, and can be broken."""
    indent = ITEM.match(line)
    start = indent.end() if indent else len(line) - len(line.lstrip())
    return len(line) > COLUMNS and len(WORD.findall(line[start:])) > 1


def fill(lines: list[str]) -> list[str]:
    """The lines of one paragraph or list item, wrapped."""
    bullet = ITEM.match(lines[0])
    first = bullet.group() if bullet else re.match(r"\s*", lines[0]).group()  # type: ignore[union-attr]
    rest = " " * len(first)
    text = " ".join([lines[0][len(first) :], *(line.strip() for line in lines[1:])])
    out = [first]
    for word in WORD.findall(text):
        # A word that would begin a list, a quotation or a heading must not come first in a line.
        room = len(out[-1]) + 1 + len(word) <= COLUMNS or re.fullmatch(r"[-*+>#]+|\d+\.", word) is not None
        if not out[-1].strip() or out[-1] == first:
            out[-1] += word
        elif room:
            out[-1] += " " + word
        else:
            out.append(rest + word)
    return out


def blocks(lines: list[str]) -> Iterator[tuple[bool, list[str]]]:
    """Groups of lines, and whether each group may be wrapped."""
    fenced = False
    block: list[str] = []
    for line in lines:
        fence = line.lstrip().startswith("```")
        if fence or fenced or not line.strip() or WHOLE.match(line) or ITEM.match(line):
            if block:
                yield True, block
            block = []
        if fence or fenced or not line.strip() or WHOLE.match(line):
            yield False, [line]
            fenced ^= fence
        else:
            block.append(line)
    if block:
        yield True, block


def wrapped(text: str) -> str:
    out: list[str] = []
    for prose, block in blocks(text.splitlines()):
        out += fill(block) if prose and any(map(is_long, block)) else block
    return "\n".join(out) + "\n"


def long_lines(text: str) -> list[str]:
    """The lines that wrapped() would break."""
    return [line for prose, block in blocks(text.splitlines()) if prose for line in block if is_long(line)]


def main() -> None:
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(wrapped(path.read_text()))


if __name__ == "__main__":
    main()
