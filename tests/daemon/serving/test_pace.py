"""A client's requests take a bounded part of the time of vgpud's event loop (AT15)."""

from __future__ import annotations

import pytest
from vgpud.serving import pace as pace_module
from vgpud.serving.pace import Pace


def test_at15_a_flood_is_slowed_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(pace_module.time, "monotonic", lambda: now)
    pace = Pace(share=0.1, burst_s=0.01)
    delays = [pace.delay_s("flood", 0.001) for _ in range(1010)]  # as from 1010 sessions at once
    assert delays[:10] == [0.0] * 10
    assert delays[-1] == pytest.approx(10.0)  # 1 s of loop time beyond the burst, at a share of a tenth
    assert pace.delay_s("bystander", 0.001) == 0.0
    now += 10.1
    assert pace.delay_s("flood", 0.001) == 0.0


@pytest.mark.control("AT15")
def test_at15_control_with_the_whole_loop_a_flood_is_never_slowed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(pace_module.time, "monotonic", lambda: now)
    pace = Pace(share=1.0, burst_s=0.01)
    for _ in range(1010):
        assert pace.delay_s("flood", 0.001) == 0.0
        now += 0.001  # the loop does nothing else


def test_who_asks_now_and_then_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(pace_module.time, "monotonic", lambda: now)
    pace = Pace(share=0.1, burst_s=0.01)
    for _ in range(1000):
        assert pace.delay_s("monitor", 0.0003) == 0.0
        now += 0.01


def test_it_remembers_a_bounded_number_of_clients() -> None:
    pace = Pace(share=0.1, burst_s=0.01)
    for number in range(10000):
        pace.delay_s(str(number), 1.0)
    assert len(pace._used_until) == 4096
