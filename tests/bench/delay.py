"""A network with latency on loopback: runs delay.c, which is compiled on first use."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("delay.c")
PROGRAM = ROOT / "build/bench/delay"


class Passed(NamedTuple):
    """What a relay has forwarded: turns (delay.c), bytes from the client and bytes to the client."""

    turns: int
    sent_nbytes: int
    received_nbytes: int

    def since(self, before: Passed) -> Passed:
        return Passed(*(now - then for now, then in zip(self, before, strict=True)))


def compiled() -> Path:
    if not PROGRAM.exists() or PROGRAM.stat().st_mtime < SOURCE.stat().st_mtime:
        PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        partial = PROGRAM.with_suffix(f".{os.getpid()}")
        cc = os.environ.get("CC", "cc")
        subprocess.run([cc, "-std=gnu11", "-O2", "-Wall", "-pthread", "-o", partial, SOURCE], check=True)
        partial.rename(PROGRAM)
    return PROGRAM


class Delay:
    """A relay to a TCP endpoint on this machine that delays each direction by `rtt_us / 2`. Context manager."""

    def __init__(self, endpoint: str, rtt_us: float) -> None:
        self._command = [str(compiled()), endpoint.rsplit(":", 1)[1], str(rtt_us / 2)]

    def __enter__(self) -> Delay:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint = f"tcp://127.0.0.1:{self._answer()}"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=30)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def passed(self) -> Passed:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Passed(*map(int, self._answer().split()))
