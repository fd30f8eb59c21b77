"""A short run of `make fuzz`: some seeds that stay, some that are new each time."""

import secrets

from tests.fuzz.executor import attack, hostile_host


def test_no_stream_of_requests_kills_a_worker_or_disturbs_others() -> None:
    with hostile_host() as running:
        reasons = [attack(running, seed) for seed in [*range(10), *(secrets.randbelow(1 << 32) for _ in range(10))]]
    assert len(reasons) == 20
