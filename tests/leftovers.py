"""Hooks of pytest, for a conftest.py: what a failed test leaves behind does not fail a later one.

A test that fails in between does not reach the lines that end what it has started. Its processes would go on beside the
later tests, and what its frames hold would be collected during one of them, which would fail by its ResourceWarning.
"""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import warnings
import weakref
from collections.abc import Generator, Iterator
from typing import Any

import pytest

_kept = False  # what is started now
_LAST = ("last_type", "last_value", "last_traceback", "last_exc")  # where pytest keeps the frames of a failed test


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """What is started in the block stays when the test fails: later tests use it, and a fixture ends it."""
    global _kept
    before, _kept = _kept, True
    try:
        yield
    finally:
        _kept = before


@contextlib.contextmanager
def started_processes() -> Iterator[weakref.WeakSet[subprocess.Popen[Any]]]:
    """The processes that are started in the block, as far as anything refers to them, and that are not kept."""
    started: weakref.WeakSet[subprocess.Popen[Any]] = weakref.WeakSet()
    init = subprocess.Popen.__init__

    def init_and_add(self: subprocess.Popen[Any], *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        if not _kept:
            started.add(self)

    subprocess.Popen.__init__ = init_and_add  # type: ignore[method-assign]
    try:
        yield started
    finally:
        subprocess.Popen.__init__ = init  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Kill what a test has started when it fails. What its fixtures have started, they end."""
    with started_processes() as started:
        try:
            yield
        except BaseException:
            for process in started:
                process.kill()
                process.wait()
            raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Collect what a failed test's frames have held."""
    result = yield
    if getattr(sys, "last_value", None) is not None:
        for name in _LAST:
            vars(sys).pop(name, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return result
