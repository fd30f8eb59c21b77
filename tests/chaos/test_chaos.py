"""A few rounds of `make chaos`, one for each deed, and a short `make soak`."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.chaos import __main__ as rounds
from tests.chaos.__main__ import DEEDS, Deed, chaos
from tests.chaos.audit import processes_of
from tests.chaos.soak import soak
from tests.daemon.running import Running, process_exists, wait_until


def test_after_each_deed_vgpud_serves_and_holds_what_it_held() -> None:
    by_deed = {}
    for seed in range(1000):
        by_deed.setdefault(random.Random(seed).choice(DEEDS), seed)
    assert len(by_deed) == len(DEEDS)
    assert len(chaos(len(DEEDS), list(by_deed.values()))) == len(DEEDS)


def test_sessions_leave_nothing_behind() -> None:
    assert soak(20) == []


def test_the_clock_begins_with_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    @contextlib.contextmanager
    def client(_: Running) -> Iterator[None]:
        nonlocal now
        now += 1
        yield

    def deed(_: Running, __: random.Random) -> Iterator[None]:
        nonlocal now
        now += 100  # prepares
        yield
        now += 10  # fails
        yield
        now += 1000  # tidies up

    def settled(_: Running, __: object) -> None:
        nonlocal now
        now += 10_000

    monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(rounds, "Client", client)
    monkeypatch.setattr(rounds, "settled", settled)
    monkeypatch.setattr(rounds, "Holdings", SimpleNamespace(of=lambda _: None))
    deeds: list[Deed] = [deed]
    running: Running = SimpleNamespace()  # type: ignore[assignment]
    assert rounds.round_of(running, 1, deeds) == rounds.Round("deed", 11, 11_011)


def test_an_orphan_is_audited() -> None:
    """As a launcher is whose loader has died before any audit."""
    script = "sh -c 'cat <&3 & echo $!' 3<&0; cat"
    with subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as leader:
        assert leader.stdout is not None
        orphan = int(leader.stdout.readline())
        assert process_exists(orphan)
        assert orphan in processes_of(leader.pid)
        leader.send_signal(signal.SIGKILL)
    wait_until(lambda: not process_exists(orphan))
