"""`pytest -p tests.ecosystem.recorder` updates docs/ecosystem.md, the last results of the ecosystem's tests.

`make test-ecosystem` loads this plug-in; a run of only some tests updates only their lines.
"""

from __future__ import annotations

import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests import pypi

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/ecosystem.md"
HEAD = """# The ecosystem's tests

`make test-ecosystem` writes this table. It lists the tests that run frameworks or whole libraries
for minutes or hours, the packages from PyPI that each test used, and the result of its last run.
[simulator.md](simulator.md) and [pytorch.md](pytorch.md) say what they run.

| test | packages | ended | seconds | commit | day |
|---|---|---|---|---|---|
"""
_ROW = re.compile(r"^\| `([^`]+)` \|.*$", re.MULTILINE)
_COMMIT = pytest.StashKey[str]()
_ended: dict[str, tuple[str, float]] = {}
_packages: dict[str, str] = {}


def pytest_sessionstart(session: pytest.Session) -> None:
    command = ["git", "rev-parse", "--short", "HEAD"]  # at the start, for a branch may move while tests run
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    session.stash[_COMMIT] = done.stdout.strip()


def pytest_runtest_setup() -> None:
    pypi.USED.clear()


def _used() -> str:
    """The first package of each set that the test asked for, with the version that is installed."""
    found = set()
    for folder, name in pypi.USED:
        for info in (folder / pypi.SITE).glob(f"{name.replace('-', '_')}-*.dist-info"):
            found.add(f"{name} {info.name.removesuffix('.dist-info').rpartition('-')[2]}")
    return ", ".join(sorted(found))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    word, seconds = _ended.get(report.nodeid, ("", 0.0))
    if report.when == "call" and report.outcome == "passed":
        word = "passed"
    if hasattr(report, "wasxfail"):
        word = "fails as expected" if report.skipped else "passed though expected to fail"
    elif report.outcome != "passed":
        word = report.outcome
    counts = dict(report.user_properties).get("counts")  # what a test says of its result
    if report.when == "teardown" and counts and ":" not in word:
        word = f"{word}: {counts}"
    _packages[report.nodeid] = _used()
    _ended[report.nodeid] = word, seconds + report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    text = DOCUMENT.read_text() if DOCUMENT.exists() else ""
    rows = {match[1]: match[0] for match in _ROW.finditer(text)}
    commit = session.stash[_COMMIT]
    day = datetime.now(UTC).date().isoformat()
    for test, (word, seconds) in _ended.items():
        if not word:  # the test was interrupted
            continue
        name = test.replace("|", "/").replace("`", "'")
        rows[name] = f"| `{name}` | {_packages[test]} | {word} | {seconds:.0f} | {commit} | {day} |"
    if _ended:
        DOCUMENT.write_text(HEAD + "".join(f"{rows[name]}\n" for name in sorted(rows)))
