"""A short run of `make fuzz`: with some fixed seeds and some that are new each time."""

import secrets

from tests.fuzz.executor import attack, hostile_host


def test_no_stream_of_requests_kills_a_worker_or_disturbs_others() -> None:
    with hostile_host() as running:
        seeds = [*range(10), *(secrets.randbelow(1 << 32) for _ in range(10))]
        reasons = [attack(running, seed, ring=bool(seed % 2)) for seed in seeds]
    assert len(reasons) == 20
