"""Hooks that remove what a failed test leaves behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.daemon.running import ENVIRONMENT, process_exists

TESTS = """
import gc, pathlib, socket, subprocess
from tests.leftovers import kept

shared = []

def test_fails():
    with kept():
        shared.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE))
    sock = socket.socket()
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    pathlib.Path("pid").write_text(str(process.pid))
    assert process is None

def test_comes_later():
    gc.collect()
    gc.collect()
    with shared.pop() as process:
        assert process.poll() is None
"""


def test_a_failed_test_fails_no_later_one(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.leftovers import pytest_runtest_call, pytest_runtest_protocol\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    options = ("-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:asyncio", f"--rootdir={tmp_path}", "test_it.py")
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert not process_exists(int((tmp_path / "pid").read_text()))
