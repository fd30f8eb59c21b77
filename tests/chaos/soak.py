"""Many sessions in sequence: memory, descriptors and files of vgpud and its launcher must not grow. Command:
`python -m tests.chaos.soak COUNT` (`make soak`)."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.chaos.audit import Holdings, settled
from tests.daemon.hostile_session import HostileSession
from tests.daemon.running import Running, children, launchers, wait_until
from tests.fuzz.executor import hostile_host

WARM_UP = 10
# Allowed growth for each session after the warm-up: allocators retain some freed memory.
GROWTH_KIB = 4.0


def resident_kib(pid: int) -> int:
    """Resident memory, private or not: what is private to a launcher depends on what its spare worker has let go."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Rss:"))


def one(running: Running) -> None:
    with HostileSession(running) as session:
        assert session.is_served()


def soak(count: int) -> list[str]:
    """Run `count` sessions; return what grew, empty if nothing did. Raises AssertionError when something is left."""
    with hostile_host() as running:
        for _ in range(WARM_UP):
            one(running)
        wait_until(lambda: not running.status()["sessions"] and len(running.status()["spare_workers"]) == 1)
        before = Holdings.of(running)
        processes = {"vgpud": running.process.pid, "loader": children(running.process.pid)[0]}
        processes["launcher"] = launchers(running.process.pid)[0]
        memory = {name: resident_kib(pid) for name, pid in processes.items()}
        for _ in range(count):
            one(running)
        settled(running, before)
        grown = {name: (resident_kib(pid) - memory[name]) / count for name, pid in processes.items()}
        for name, kib in grown.items():
            print(f"{name}: {memory[name]} KiB, {kib:+.2f} KiB a session over {count}")
        bound = GROWTH_KIB + 2048 / count  # an allocator may take 2 MiB once
        return [f"{name} grew by {kib:.1f} KiB a session" for name, kib in grown.items() if kib > bound]


if __name__ == "__main__":
    if problems := soak(int(sys.argv[1]) if len(sys.argv) > 1 else 500):
        sys.exit("\n".join(problems))
