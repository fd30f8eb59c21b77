"""Which lines of the executor's files have been executed, as gcov tells, and what each file must reach."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
FLOOR = HERE / "floor.tsv"
FLOOR_WORKERS = HERE / "floor_workers.tsv"
Lines = dict[str, dict[int, bool]]  # of each file: its executable lines, and whether they have been executed


def executed_lines(folder: Path, root: Path = ROOT) -> Lines:
    """From the counts of the objects in `folder`, which were compiled below `root`. Raises CalledProcessError."""
    notes = sorted(folder.glob("executor-*.gcda"))
    done = subprocess.run(
        ["gcov", "--json-format", "--stdout", *map(str, notes)], cwd=root, capture_output=True, text=True, check=True
    )
    lines: Lines = {}
    for document in done.stdout.splitlines():
        for file in json.loads(document)["files"]:
            if re.search(r"executor/vgx_(?!binding)\w+\.c$", file["file"]):
                seen = lines.setdefault(Path(file["file"]).name, {})
                for line in file["lines"]:
                    seen[line["line_number"]] = seen.get(line["line_number"], False) or line["count"] > 0
    return lines


def united(*measured: Lines) -> Lines:
    """Lines that any of the measurements has executed."""
    both: Lines = {}
    for lines in measured:
        for name, seen in lines.items():
            known = both.setdefault(name, {})
            for number, hit in seen.items():
                known[number] = known.get(number, False) or hit
    return both


def percent(lines: Lines) -> dict[str, int]:
    return {name: 100 * sum(seen.values()) // len(seen) for name, seen in sorted(lines.items())}


def read_floor(path: Path = FLOOR) -> dict[str, int]:
    rows = (line.split("\t") for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return {name: int(least) for name, least, *_why in rows}


def table(of_search: Lines, of_workers: Lines) -> tuple[list[str], list[str]]:
    """Lines of a table of all files, and the files below their floor: the search's where it has one, else of both. What
    was not measured lacks nothing."""
    searched, tested, both = percent(of_search), percent(of_workers), percent(united(of_search, of_workers))
    floor, floor_of_both = read_floor(FLOOR), read_floor(FLOOR_WORKERS)
    lines, lacking = [f"{'':<28}{'search':>8}{'workers':>9}{'both':>6}{'floor':>7}"], []
    for name, percents in both.items():
        of = searched if name in floor else both
        least = floor.get(name, floor_of_both.get(name, 0))
        short = bool(of_search if name in floor else of_workers) and of[name] < least
        lacking += [name] if short else []
        columns = f"{searched.get(name, 0):>8}{tested.get(name, 0):>9}{percents:>6}{least or 'none':>7}"
        lines.append(f"{name:<28}{columns}{'  below' if short else ''}")
    return lines, lacking
