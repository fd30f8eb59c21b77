"""Weights of tenants on a card, counted in simulated time, and what becomes of turns whose owner ends."""

from __future__ import annotations

import ctypes
import mmap
import os

import pytest
from vgpud.tenancy.turns import NBYTES, Policy, Turns

from tests.daemon.executor.turn_taking import MS, US, Card, Tenant, build, infer, saturate


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(tmp_path_factory.mktemp("turns"))


@pytest.fixture
def card(library: ctypes.CDLL) -> Card:
    return Card(library)


def parts(card: Card, tenants: list[Tenant], for_ns: int) -> list[float]:
    """Each tenant's part of the time of all kernels."""
    before = [tenant.done_ns for tenant in tenants]
    card.run(for_ns)
    got = [tenant.done_ns - done for tenant, done in zip(tenants, before, strict=True)]
    return [each / sum(got) for each in got]


@pytest.mark.parametrize(("first", "second"), [(200, 200), (200, 20), (20, 900), (5_000, 200), (50_000, 1_000)])
@pytest.mark.parametrize("weights", [(300, 100), (100, 100)])
def test_two_that_saturate(weights: tuple[int, int], first: int, second: int, card: Card) -> None:
    """Within 5 %, whatever their kernels' lengths are."""
    tenants = [card.tenant(f"t{weight}{i}", weight) for i, weight in enumerate(weights)]
    for tenant, kernel_us in zip(tenants, (first, second), strict=True):
        card.start(saturate(tenant, kernel_us * US))
    card.run(50 * MS)
    long = max(first, second) > 10_000
    card.waiting_ns *= 10 if long else 1
    got = parts(card, tenants, (8_000 if long else 800) * MS)
    assert got[0] == pytest.approx(weights[0] / sum(weights), rel=0.05)


def test_eight_that_saturate(card: Card) -> None:
    """Within 10 % each."""
    weights = [300] * 4 + [100] * 4
    tenants = [card.tenant(f"t{i}", weight) for i, weight in enumerate(weights)]
    for i, tenant in enumerate(tenants):
        card.start(saturate(tenant, (100 + 60 * i) * US))
    card.run(50 * MS)
    for weight, got in zip(weights, parts(card, tenants, 800 * MS), strict=True):
        assert got == pytest.approx(weight / sum(weights), rel=0.10)


def test_sessions_of_one_tenant_count_together(card: Card) -> None:
    one, other = card.tenant("a"), card.tenant("b")
    third = card.tenant("b")
    for tenant in (one, other, third):
        card.start(saturate(tenant, 200 * US))
    card.run(50 * MS)
    first, second, third_part = parts(card, [one, other, third], 800 * MS)
    assert first == pytest.approx(0.5, rel=0.05)
    assert min(second, third_part) > 0.1


@pytest.mark.parametrize("weight", [300, 100])
def test_inference_beside_training(weight: int, card: Card) -> None:
    """A tenant that uses less than its share waits only for work that is already on the card."""
    small, large = card.tenant("inference", weight), card.tenant("training")
    alone: list[int] = []
    work = infer(small, 2 * MS, 9, 5 * US, alone)
    card.start(work)
    card.run(500 * MS)
    beside, count = [], len(alone)
    card.start(saturate(large, 200 * US))
    card.run(200 * MS)
    alone, beside = alone[:count], alone
    beside.clear()
    _, got = parts(card, [small, large], 800 * MS)
    assert count > 200 < len(beside)
    alone.sort(), beside.sort()
    longest = max(200 * US, card.policy.ahead_ns)
    assert beside[len(beside) * 99 // 100] <= 1.2 * alone[len(alone) * 99 // 100] + longest
    assert large.done_ns > 0.6 * 1_000 * MS  # the large tenant uses what the small one leaves
    assert got > 0.9


def test_a_small_weight_does_not_starve(card: Card) -> None:
    small, large = card.tenant("small", 1), card.tenant("large", 10_000)
    for tenant in (small, large):
        card.start(saturate(tenant, 200 * US))
    card.run(2_100 * MS)
    assert small.done_ns >= 4 * card.policy.quantum_ns * 0.9  # a quantum in each half second


def test_who_is_alone_needs_no_turn(library: ctypes.CDLL) -> None:
    card = Card(library, Policy(alone_ns=50 * MS))
    one, other = card.tenant("a"), card.tenant("b")
    times: list[int] = []
    card.start(saturate(one, 200 * US))
    card.start(infer(other, 200 * MS, 1, 50 * US, times))
    card.run(40 * MS)
    assert not alone(card)
    card.run(60 * MS)
    assert alone(card) == one.seat.tenant + 1
    card.run(110 * MS)
    assert not alone(card)  # the other has come back


def alone(card: Card) -> int:
    return int.from_bytes(card._memory[8768 + 32 : 8768 + 40], "little")


def test_turns_end_with_their_tenant(card: Card) -> None:
    one, other = card.tenant("a"), card.tenant("b", 200)
    ask = card.library.vgx_turn_ask
    assert ask(one.seat, 10, 10)
    card.library.vgx_turn_expect(one.seat, 10**15, 10)
    assert not ask(other.seat, 20, 20)
    card.turns.give_back(one.row)
    assert ask(other.seat, 30, 30)
    assert card.turns.rows == {other.row: "b"}


def test_a_turn_that_nobody_ends_is_taken(card: Card) -> None:
    """Its owner's process is stopped, or its kernel never ends."""
    one, other = card.tenant("a"), card.tenant("b")
    ask = card.library.vgx_turn_ask
    assert ask(one.seat, 10, 10)
    card.library.vgx_turn_expect(one.seat, 2**62, 10)
    begun = 1000
    assert not ask(other.seat, begun + card.policy.starving_ns, begun)
    assert ask(other.seat, begun + card.policy.starving_ns + 1, begun)


def test_more_tenants_than_places(card: Card) -> None:
    for i in range(64):
        card.tenant(f"t{i}")
    assert card.turns.take(64, "late", 100) is None
    assert card.turns.take(64, "t3", 100) == 3


def test_a_file_is_taken_over(card: Card) -> None:
    first = card.tenant("a", 300)
    again = Turns.restore(os.dup(card.turns.fileno()), card.turns.dump() | {"rows": {"0": "a"}})
    assert again.rows == {0: "a"}
    assert again.take(1, "a", 300) == first.seat.tenant
    again.give_back(0)
    again.give_back(1)
    assert again.rows == {}
    assert Turns.restore(os.dup(card.turns.fileno()), {"nbytes": NBYTES + 8, "rows": {"0": "a"}}).rows == {}


def test_the_next_vgpud_believes_nothing_that_workers_wrote(card: Card) -> None:
    card.turns.take(0, "a", 100)
    with mmap.mmap(card.turns.fileno(), NBYTES) as memory:
        memory[64:] = bytes([255]) * (NBYTES - 64)
    again = Turns.restore(os.dup(card.turns.fileno()), card.turns.dump())
    assert again.take(0, "a", 100) == card.turns.take(0, "a", 100)
    assert set(again.used_ns()) == {("a", device) for device in range(16)}
    again.give_back(0)
    assert again.take(1, "b", 100) == 0
