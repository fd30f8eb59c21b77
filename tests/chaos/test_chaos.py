"""A few rounds of `make chaos`, one for each deed, and a short `make soak`."""

from __future__ import annotations

import random

from tests.chaos.__main__ import DEEDS, chaos
from tests.chaos.soak import soak


def test_after_each_deed_vgpud_serves_and_holds_what_it_held() -> None:
    by_deed = {}
    for seed in range(1000):
        by_deed.setdefault(random.Random(seed).choice(DEEDS), seed)
    assert len(by_deed) == len(DEEDS)
    assert len(chaos(len(DEEDS), list(by_deed.values()))) == len(DEEDS)


def test_sessions_leave_nothing_behind() -> None:
    assert soak(20) == []
