"""Tenants that take turns at a card, in simulated time: daemon/executor/vgx_turn.c decides, and a card that executes
kernels one after another stands for a real one. A tenant waits and submits as vgx_gate.c does.
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import mmap
import random
import subprocess
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from vgpud.tenancy import turns
from vgpud.tenancy.turns import Policy, Turns

from tests.conftest import ROOT

EXECUTOR = ROOT / "daemon/executor"
MS, US = 1_000_000, 1_000
Step = Generator[int]  # yields the times for which it sleeps


class Seat(ctypes.Structure):
    """struct vgx_turn_seat."""

    _fields_ = [("turns", ctypes.c_void_p), *((name, ctypes.c_uint32) for name in ("device", "tenant", "row"))]


def build(folder: Path) -> ctypes.CDLL:
    library = folder / "turn.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(EXECUTOR / "vgx_turn.c"), "-o", str(library)], check=True)
    found = ctypes.CDLL(str(library))
    found.vgx_turn_ask.argtypes = [ctypes.POINTER(Seat), ctypes.c_uint64, ctypes.c_uint64]
    found.vgx_turn_ask.restype = ctypes.c_bool
    found.vgx_turn_expect.argtypes = [ctypes.POINTER(Seat), ctypes.c_uint64, ctypes.c_uint64]
    found.vgx_turn_leave.argtypes = [ctypes.POINTER(Seat), ctypes.c_uint64]
    return found


@dataclass
class Card:
    """One device, its clock, and the file that tenants share."""

    library: ctypes.CDLL
    policy: Policy = field(default_factory=Policy)
    waiting_ns: int = 30_000  # between two tries in the turn of another tenant
    now_ns: int = 1_000_000_000
    free_ns: int = 0  # when the card has executed all submitted kernels

    def __post_init__(self) -> None:
        self.turns = Turns(self.policy, now_ns=lambda: self.now_ns)
        self._memory = mmap.mmap(self.turns.fileno(), turns.NBYTES)
        self._rows = itertools.count()
        self._queue: list[tuple[int, int, Step]] = []
        self._order = itertools.count()

    def tenant(self, name: str, weight: int = 100) -> Tenant:
        row = next(self._rows)
        number = self.turns.take(row, name, weight)
        assert number is not None
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        return Tenant(self, Seat(start, 0, number, row), row)

    def start(self, work: Step, after_ns: int = 0) -> None:
        heapq.heappush(self._queue, (self.now_ns + after_ns, next(self._order), work))

    def run(self, for_ns: int) -> None:
        until = self.now_ns + for_ns
        while self._queue and self._queue[0][0] <= until:
            self.now_ns, _, work = heapq.heappop(self._queue)
            pause = next(work, None)
            if pause is not None:
                self.start(work, pause)
        self.now_ns = until


@dataclass
class Tenant:
    """A session of a tenant of its own."""

    card: Card
    seat: Seat
    row: int
    work: list[tuple[int, int]] = field(default_factory=list)  # of each submitted kernel: its end and length
    done_ns: int = 0  # the length of all kernels together
    idle_ns: int = 0  # when it was last seen that no kernel runs
    is_watched: bool = False

    def submit(self, kernel_ns: int) -> Step:
        """Wait for the turn and for room, then give the card a kernel."""
        card, library = self.card, self.card.library
        since = card.now_ns
        while True:
            self._look()
            ahead = sum(length for _, length in self.work)
            room = not self.work or ahead + kernel_ns <= card.policy.ahead_ns
            ours = library.vgx_turn_ask(self.seat, card.now_ns, since)
            if room and ours:
                break
            yield max(US, self.work[0][0] - card.now_ns) if ours and self.work else card.waiting_ns
        card.free_ns = max(card.free_ns, card.now_ns) + kernel_ns
        self.work.append((card.free_ns, kernel_ns))
        self.done_ns += kernel_ns
        self._expect()
        if not self.is_watched:
            self.is_watched = True
            card.start(self._watch())

    def finish(self) -> Step:
        """Wait for the card."""
        while self.work and self.work[-1][0] > self.card.now_ns:
            yield self.work[-1][0] - self.card.now_ns

    def _look(self) -> None:
        before = len(self.work)
        self.work = [kernel for kernel in self.work if kernel[0] > self.card.now_ns]
        if len(self.work) != before:
            self.idle_ns = self.card.now_ns
            self._expect()

    def _expect(self) -> None:
        ahead = sum(length for _, length in self.work)
        self.card.library.vgx_turn_expect(self.seat, ahead, self.card.now_ns)

    def _watch(self) -> Step:
        while True:
            self._look()
            if not self.work and self.card.now_ns - self.idle_ns >= self.card.policy.pause_ns:
                break
            yield self.card.waiting_ns
        self.is_watched = False
        self.card.library.vgx_turn_leave(self.seat, self.card.now_ns)


def saturate(tenant: Tenant, kernel_ns: int, at_once: int = 8) -> Step:
    """Kernels without a pause, except that the program at times waits for some of them."""
    while True:
        for _ in range(at_once):
            yield from tenant.submit(kernel_ns)
        yield from tenant.finish()
        yield 10 * US


def infer(tenant: Tenant, period_ns: int, kernels: int, kernel_ns: int, times: list[int], seed: int = 0) -> Step:
    """Bursts of kernels; the duration of each is appended to `times`."""
    chance = random.Random(seed)
    card = tenant.card
    while True:
        begun = card.now_ns
        for _ in range(kernels):
            yield from tenant.submit(kernel_ns)
            yield 15 * US
        yield from tenant.finish()
        times.append(card.now_ns - begun)
        yield max(0, begun + period_ns - card.now_ns) + chance.randrange(200 * US)
