"""Processor time follows weights, although nice values are coarse and tenants use what they get unequally well."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from vgpud.supervision import balance
from vgpud.supervision.balance import Balance, Tenant, correct
from vgpud.supervision.cgroup import NICE_STEP, nice_of


def parts(weights: list[int], efficiency: list[float], periods: int = 400) -> list[float]:
    """The tenants' shares of processor time in the long run: the simulated scheduler gives 1.25 times as much time for
    each nice value less, and each tenant uses the fraction `efficiency` of its time."""
    bases = [nice_of(weight, weights) for weight in weights]
    tenants = [Tenant(w, float(b), level=float(b), nice=b) for w, b in zip(weights, bases, strict=True)]
    got = [0.0] * len(tenants)
    for period in range(periods):
        shares = [e * NICE_STEP**-tenant.nice for tenant, e in zip(tenants, efficiency, strict=True)]
        times = [share / sum(shares) for share in shares]
        if period >= periods // 2:
            got = [one + two for one, two in zip(got, times, strict=True)]
        correct(zip(tenants, times, strict=True))
        for tenant in tenants:
            tenant.nice = tenant.next_nice()
            assert 0 <= tenant.nice <= 19
    return [each / sum(got) for each in got]


@pytest.mark.parametrize(
    ("weights", "efficiency"),
    [
        ([300, 100], [1.0, 1.0]),
        ([300, 100], [0.85, 1.0]),
        ([200, 100], [0.8, 1.1]),
        ([100, 100], [0.7, 1.0]),
        ([800, 400, 400, 200, 200, 100, 100, 100], [1.0, 0.9, 1.1, 1.0, 0.8, 1.0, 1.2, 0.9]),
    ],
    ids=str,
)
def test_parts_are_those_of_the_weights(weights: list[int], efficiency: list[float]) -> None:
    due = [weight / sum(weights) for weight in weights]
    for got, wanted in zip(parts(weights, efficiency), due, strict=True):
        assert abs(got - wanted) <= 0.05 * wanted


def test_a_tenant_that_does_not_want_its_part_ruins_nobodys() -> None:
    """One tenant uses a small fraction of its part: the other two keep their ratio."""
    hungry = parts([200, 100, 100], [1.0, 1.0, 0.02])
    assert hungry[0] / hungry[1] == pytest.approx(2.0, rel=0.1)


SPIN = "import sys\nprint(flush=True)\nwhile True: pass"


@pytest.fixture
def spinning() -> Iterator[list[subprocess.Popen[str]]]:
    processes = [subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.asyncio
async def test_nice_values_of_running_workers_follow(
    spinning: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both processes use about the same time: the one with less weight gets a higher nice value."""
    if os.geteuid() != 0:
        pytest.skip("lowering a nice value needs root")
    monkeypatch.setattr(balance, "_idle_ticks", lambda: 0)  # ignores the machine's other load

    async def run() -> list[int]:
        found = Balance()
        for process, weight in zip(spinning, (300, 100), strict=True):
            found.add(process.pid, str(weight), weight, 0)
        nices = [0, 0]
        while nices[1] == 0:  # until both have run for long enough
            await asyncio.sleep(balance.PERIOD_S)
            found.step()
            nices = [os.getpriority(os.PRIO_PROCESS, process.pid) for process in spinning]
        for process in spinning:
            found.remove(process.pid)
        return nices

    most, least = await run()
    assert most == 0
    assert least > 0


@pytest.mark.asyncio
async def test_who_may_not_lower_one_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_pid: int, _nice: int) -> None:
        raise PermissionError

    async def run() -> bool:
        found = Balance()
        found.add(os.getpid(), "one", 100, 0)
        monkeypatch.setattr(balance, "set_nice", refused)
        found._tenants["one"].level = 3.0
        found.step()
        found.remove(os.getpid())
        return found._may_lower

    assert not await run()
