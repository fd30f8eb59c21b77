"""The bound on the processor time of one compilation."""

from __future__ import annotations

import _thread
import time

from vgpusim.compile_limit import CompileLimit

from tests.patience import PATIENCE_S


def test_what_uses_too_much_processor_time_is_ended() -> None:
    ended: list[str] = []
    limit = CompileLimit(0.05, ended.append)
    deadline = time.monotonic() + PATIENCE_S
    with limit.over("a kernel"):
        while not ended and time.monotonic() < deadline:
            pass
    assert ended == ["a kernel"]


def test_what_only_waits_is_not_ended() -> None:
    """A busy host gives a compilation little processor time, which is no reason to end it."""
    ended: list[str] = []
    with CompileLimit(0.05, ended.append).over("a kernel"):
        time.sleep(0.3)
    assert ended == []


def test_no_thread_stays_behind() -> None:
    before = _thread._count()  # type: ignore[attr-defined]
    limit = CompileLimit(PATIENCE_S, lambda what: None)
    for _ in range(100):
        with limit.over("a kernel"):
            pass
    deadline = time.monotonic() + PATIENCE_S
    while _thread._count() > before and time.monotonic() < deadline:  # type: ignore[attr-defined]
        time.sleep(0.01)
    assert _thread._count() <= before  # type: ignore[attr-defined]
