"""What the bound of a card's memory (`memory_mib` of a share) costs: `python tests/bench/limit.py [--rounds 5]`.

Pairs of calls that allocate and free 4 KiB, over a driver that only counts, with the bound and without it, alternating;
the difference is what the bound adds to a pair on a card. Launches and copies call the driver's functions as without a
bound. `--sessions` is how many rows of the ledger are summed.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon"), str(ROOT / "guest")]

from tests.daemon.executor.limited import Limited, build  # noqa: E402

TURNS = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sessions", type=int, nargs="*", default=[1, 100])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        library = build(Path(name))
        for sessions in options.sessions:
            limited = Limited(library, Path(name), 1 << 30)
            for _ in range(sessions - 1):
                limited.ledger.take("uid:2")
            limited.library.vgt_pair_ns.restype = ctypes.c_double
            for what, pool in (("cuMemAlloc and cuMemFree", 0), ("cuMemAllocAsync and cuMemFreeAsync", 1)):
                added = []
                for _ in range(options.rounds):
                    bound, free = (limited.library.vgt_pair_ns(bound, pool, TURNS) for bound in (1, 0))
                    added.append(bound - free)
                print(
                    f"{sessions} sessions, {what}: {statistics.median(added):.0f} ns more "
                    f"({min(added):.0f} to {max(added):.0f})"
                )


main()
