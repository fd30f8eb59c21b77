"""What is known of CUPTI: callback ids, layouts of records, exports, results (protocol/data)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data"
MAJORS = (12, 13)
DRIVER, RUNTIME = "d", "r"


def _rows(name: str) -> list[list[str]]:
    lines = (DATA / name).read_text().splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


@cache
def callback_ids(domain: str) -> dict[str, int]:
    """The callback id of each function of a domain; a runtime function's name ends with `_vNNNNN`."""
    return {name: int(number) for kind, number, name in _rows("cupti-cbids.tsv") if kind == domain}


def runtime_callback_id(name: str, major: int) -> int:
    """The callback id of a runtime function in a major, for the name's newest version in that major; 0: none."""
    found = [
        (int(version), number)
        for full, number in callback_ids(RUNTIME).items()
        for base, _, version in [full.rpartition("_v")]
        if base == name and version.isdigit() and int(version) < (major + 1) * 1000
    ]
    return max(found)[1] if found else 0


@dataclass(frozen=True)
class Field:
    """A field of an activity record; no offset: that major does not have it."""

    name: str
    nbytes: int
    offset: int


@dataclass(frozen=True)
class Record:
    """An activity record as a major lays it out."""

    name: str
    nbytes: int
    fields: tuple[Field, ...]


def records(major: int) -> list[Record]:
    """All records that the library writes, as that major has them."""
    column = 3 + MAJORS.index(major)
    found: dict[str, int] = {}
    fields: dict[str, list[Field]] = {}
    for row in _rows("cupti-layouts.tsv"):
        if row[1] == ".":
            found[row[0]] = int(row[column])
        elif row[column] != "-":
            fields.setdefault(row[0], []).append(Field(row[1], int(row[2]), int(row[column])))
    return [Record(name, nbytes, tuple(fields[name])) for name, nbytes in found.items()]


def exports(major: int) -> list[str]:
    """What NVIDIA's library of that major exports."""
    return (DATA / f"libcupti-{major}-exports.txt").read_text().split()


def results() -> list[tuple[int, str]]:
    """Numbers and names of CUptiResult."""
    return [(int(number), name) for number, name in _rows("cupti-results.tsv")]
