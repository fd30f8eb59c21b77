"""The table of executed lines."""

from __future__ import annotations

import pytest

from tests.fuzz import lines


@pytest.fixture(autouse=True)
def floors(tmp_path, monkeypatch):
    """Floors of files that the search executes, and of those that only workers do."""
    for name, text in (("FLOOR", "a.c\t90\nb.c\t50\n"), ("FLOOR_WORKERS", "# why\nd.c\t75\tchance\n")):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(lines, name, tmp_path / name)


def hits(count: int, first: int = 0) -> dict[int, bool]:
    """Of four lines."""
    return {number: first <= number < first + count for number in range(4)}


def test_each_file_is_compared_with_its_floor():
    of_search = {"a.c": hits(3), "b.c": hits(2), "d.c": hits(0)}
    of_workers = {"a.c": hits(1, first=3), "b.c": hits(4), "c.c": hits(1), "d.c": hits(3)}
    text, lacking = lines.table(of_search, of_workers)
    assert [line.split() for line in text[1:]] == [
        ["a.c", "75", "25", "100", "90", "below"],  # of the search, which is what its floor is of
        ["b.c", "50", "100", "100", "50"],
        ["c.c", "0", "25", "25", "none"],
        ["d.c", "0", "75", "75", "75"],
    ]
    assert lacking == ["a.c"]


def test_what_was_not_measured_lacks_nothing():
    assert lines.table({}, {"a.c": hits(1), "d.c": hits(1)})[1] == ["d.c"]
    assert lines.table({"a.c": hits(4), "d.c": hits(0)}, {})[1] == []
