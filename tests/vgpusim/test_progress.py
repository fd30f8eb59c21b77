"""An operation that takes seconds is reported in one line."""

from __future__ import annotations

import pytest
from vgpusim import progress

from tests.daemon.running import wait_until


def test_what_takes_long_is_said_once_and_readably(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_last_at", -progress._PAUSE_S)
    told: list[bytes] = []
    monkeypatch.setattr(progress, "tell", told.append)
    said = ""

    def heard() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return bool(said)

    with progress.reported("compiling kernel _Z4pokePi", after_s=0):
        wait_until(heard)
    with progress.reported("another, soon after", after_s=0):
        pass
    progress._say("a third")
    heard()
    assert told == [b"compiling kernel poke(int*)"]
    assert said == "<6>compiling kernel poke(int*)\n"


def test_what_goes_on_after_the_pause_is_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PAUSE_S", 0.05)
    monkeypatch.setattr(progress, "_last_at", -1.0)
    told: list[bytes] = []
    monkeypatch.setattr(progress, "tell", told.append)
    with progress.reported("reading", after_s=0):
        wait_until(lambda: told == [b"reading"])
        with progress.reported("compiling", after_s=0):
            wait_until(lambda: told == [b"reading", b"compiling"])


def test_what_is_done_soon_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    with progress.reported("short", after_s=3600):
        pass
    assert capfd.readouterr().err == ""
