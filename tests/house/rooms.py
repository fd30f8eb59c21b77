"""Which C file calls which: circles of files, and prototypes whose function is defined in a file of another name.

A file is a stem: `vgs_copy.c` and `vgs_copy.h` are one. A file depends on the files that define the functions and
variables it names. Generated files are ignored: they are built for the hand-written files and call them.

`python tests/house/rooms.py` prints both; `python tests/house/rooms.py FROM TO` prints why FROM depends on TO.
"""

import functools
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("shim", "daemon", "protocol/c")

NOT_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
# Captures a name in use, unless it is a tag or a member.
WORD = re.compile(r"(?:\b(?:struct|enum|union)\s+\w+|(?:\.|->)\s*\w+)|\b([A-Za-z_]\w*)")
OUTERMOST = re.compile(r"^(?![\s#}])[^;{]*[;{]", re.M)
FUNCTION = re.compile(r"\b(?!_Atomic\b)(\w+)\((?!\()")
ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)\s*", re.S)
NO_FUNCTION = ("typedef", "struct ", "enum ", "union ", "_Static_assert", "extern ")


@functools.cache
def code_of(text: str) -> str:
    """The text without comments and strings."""
    return NOT_CODE.sub(" ", text)


def declared(code: str) -> tuple[set[str], set[str]]:
    """The names of the functions that the code defines and declares, static ones aside."""
    defined, promised = set(), set()
    for match in OUTERMOST.finditer(code):
        head = ATTRIBUTE.sub("", match.group())
        if head.startswith(("static ", "typedef", "_Static_assert")) or "(" not in head or "=" in head.split("(")[0]:
            continue
        found = FUNCTION.search(head)
        if found is None or "(*" in head.split(found.group(1))[0]:
            continue
        (defined if head.endswith("{") else promised).add(found.group(1))
    return defined, promised


def variables(code: str) -> set[str]:
    """Names that a header declares with `extern`."""
    lines = re.findall(r"^extern [^;]*;", ATTRIBUTE.sub("", code), re.M)
    return {name for line in lines for name in re.findall(r"(\w+)(?:\[[^]]*\])*(?=[,;])", line)} | {
        name for line in lines for name in re.findall(r"\(\*(\w+)\)", line)
    }


@dataclass
class House:
    """What the C files define, declare and name."""

    names: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    owner: dict[str, str] = field(default_factory=dict)
    promises: dict[str, str] = field(default_factory=dict)  # from function to the stem of its header
    folder: dict[str, str] = field(default_factory=dict)

    def edges(self) -> dict[str, set[str]]:
        """For each stem, the stems that it depends on."""
        found: dict[str, set[str]] = {stem: set() for stem in self.names}
        for stem, names in self.names.items():
            found[stem] = {self.owner[name] for name in names if name in self.owner} - {stem}
        return found

    def why(self, one: str, other: str) -> list[str]:
        return sorted(name for name in self.names[one] if self.owner.get(name) == other)


@functools.cache
def read() -> House:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", *PARTS],
        cwd=ROOT, capture_output=True, check=True, text=True,
    )  # fmt: skip
    house = House()
    externs: dict[str, str] = {}
    files = sorted(ROOT / name for name in listing.stdout.split("\0") if name.endswith((".c", ".h")))
    for path in files:
        if not path.exists():
            continue
        code, stem = code_of(path.read_text()), path.stem
        house.folder[stem] = str(path.parent.relative_to(ROOT))
        defined, promised = declared(code)
        house.names[stem] |= set(WORD.findall(code)) - {""} - promised - variables(code)
        for name in defined:
            house.owner[name] = stem
        if path.suffix == ".h":
            for name in promised:
                house.promises[name] = stem
            for name in variables(code):
                externs[name] = stem
    for path in files:
        if path.suffix == ".c" and path.exists():
            for line in re.findall(
                r"^(?!extern |static |typedef |[\s#}])[^;(={]*[;={]", code_of(path.read_text()), re.M
            ):
                house.owner.update(dict.fromkeys(externs.keys() & set(re.findall(r"\w+", line)), path.stem))
    house.owner.pop("main", None)
    return house


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one file, largest first (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(stem: str) -> None:
        index[stem] = low[stem] = len(index)
        stack.append(stem)
        for other in sorted(edges.get(stem, ())):
            if other not in index:
                visit(other)
                low[stem] = min(low[stem], low[other])
            elif other in stack:
                low[stem] = min(low[stem], index[other])
        if low[stem] == index[stem]:
            members = stack[stack.index(stem) :]
            del stack[-len(members) :]
            if len(members) > 1:
                found.append(sorted(members))

    for stem in sorted(edges):
        if stem not in index:
            visit(stem)
    return sorted(found, key=lambda members: (-len(members), members))


def misplaced(house: House) -> dict[str, tuple[str, str]]:
    """Functions declared in one file's header and defined in another file: (header, definer)."""
    return {
        name: (header, house.owner[name])
        for name, header in house.promises.items()
        if name in house.owner and house.owner[name] != header
    }


def main() -> None:
    house = read()
    edges = house.edges()
    if len(sys.argv) == 3:
        print("\n".join(house.why(*sys.argv[1:])) or "it does not")
        return
    for members in circles(edges):
        print(f"circle of {len(members)} files in {house.folder[members[0]]}:")
        for stem in members:
            within = {other: house.why(stem, other) for other in sorted(edges[stem] & set(members))}
            print(f"  {stem} -> " + "; ".join(f"{other} ({', '.join(names)})" for other, names in within.items()))
    elsewhere = misplaced(house)
    for name, (header, definer) in sorted(elsewhere.items(), key=lambda item: item[1]):
        print(f"{header}.h declares {name}, {definer}.c defines it")
    print(f"{len(elsewhere)} of {len(house.promises)} prototypes defined in a file of another name")


if __name__ == "__main__":
    main()
