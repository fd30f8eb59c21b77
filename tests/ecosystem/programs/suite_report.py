"""A plug-in of pytest: writes what becomes of each test to the file that VGPU_SUITE_REPORT names, a JSON line each.

A test's beginning has a line, too, so that the one that ended the process is known.
"""

import json
import os
from pathlib import Path

import pytest

MESSAGE_LENGTH, TEXT_LENGTH = 300, 2500


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    """The fixture of numba-cuda's conftest.py, which its wheel lacks though its tests ask for it."""
    request.cls._dump_failed_filechecks = False


def pytest_collection_modifyitems(config, items):
    """Keep the tests that VGPU_SUITE_TESTS has, one a line: pytest's arguments cannot name what has a [ in a class."""
    wanted = os.environ.get("VGPU_SUITE_TESTS")
    if wanted is not None:
        kept = set(wanted.splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
        items[:] = [item for item in items if item.nodeid in kept]


def _write(**fields):
    with Path(os.environ["VGPU_SUITE_REPORT"]).open("a") as file:
        file.write(json.dumps(fields) + "\n")


def _outcome(report):
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    if report.failed and report.when != "call":
        return "error"
    return report.outcome if report.when == "call" or report.skipped else ""  # a set-up that passed decides nothing


def _message(report):
    if isinstance(report.longrepr, tuple):  # file, line, reason of a skip
        return report.longrepr[2]
    if report.passed:
        return str(dict(report.user_properties).get("counts", ""))
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message if crash else ""


def pytest_runtest_logstart(nodeid):
    _write(test=nodeid)


def pytest_runtest_logreport(report):
    if outcome := _outcome(report):
        text = report.longreprtext[-TEXT_LENGTH:] if report.failed else ""
        message = _message(report)[:MESSAGE_LENGTH]
        _write(test=report.nodeid, outcome=outcome, seconds=round(report.duration, 1), message=message, text=text)
