"""All sessions share one card's memory (AT7): each sees, and is limited by, what the others use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from vgpud.devices.ledger import ROWS, Ledger

from tests.daemon.running import Running, vgpud_with_real_workers, wait_until
from tests.shim.client import PRELUDE, environment

GIB = 1 << 30
CLIENT = """
context()
held = []
for line in sys.stdin:
    command, _, amount = line.strip().partition(" ")
    if command == "take":
        p = c_uint64()
        result = cuda.cuMemAlloc_v2(byref(p), c_size_t(int(amount) << 30))
        held.append(p)
        print(result, flush=True)
    elif command == "give":
        print(cuda.cuMemFree_v2(held.pop()), flush=True)
    else:
        free, total = c_size_t(), c_size_t()
        ok(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
        print((total if command == "total" else free).value >> 30, flush=True)
"""
OUT_OF_MEMORY = 2


class Client:
    """A client process that executes commands, one per line."""

    def __init__(self, endpoint: str, **changes: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + CLIENT],
            env=environment(endpoint, **changes),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, command: str) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    for running in vgpud_with_real_workers(tmp_path):
        yield str(running.endpoint)


def test_at7_sessions_share_a_card(endpoint: str) -> None:
    first, second, third = clients = [Client(endpoint) for _ in range(3)]
    for client in clients:
        client("free")  # returns once the client has its context
    whole = first("free")
    assert whole == second("free") == third("free")
    assert first("take 60") == 0
    assert second("free") <= whole - 60
    assert second("take 60") == OUT_OF_MEMORY
    assert second("take 10") == 0
    assert third("take 10") == OUT_OF_MEMORY
    assert first("give") == 0
    assert third("take 50") == 0
    third.kill()  # its memory is free once its worker has ended
    wait_until(lambda: first("free") >= whole - 11)
    assert second("take 60") == 0
    for client in clients:
        client.kill()


def test_rows_are_used_again_empty() -> None:
    ledger = Ledger()
    rows = [ledger.take(f"uid:{number % 3}") for number in range(ROWS)]
    assert rows == list(range(ROWS))
    assert ledger.take("uid:0") is None
    row = (1 + 7) * 48 * 8  # skips the counter's row; the first columns of a row are devices
    ledger._memory[row : row + 8] = (5 * GIB).to_bytes(8, "little")
    assert ledger.used(0) == 5 * GIB
    assert ledger.used(1) == 0
    ledger.give_back(7)
    assert ledger.used(0) == 0
    assert ledger.take("uid:7") == 7


@pytest.fixture
def two_tenants(tmp_path: Path) -> Iterator[str]:
    config = tmp_path / "vgpud.toml"
    config.write_text(
        f"listen = ['tcp://127.0.0.1:0']\ngpus = 'h100'\nadmin = ''\ncache_dir = '{tmp_path}'\n"
        "default_share = 'small'\n"
        "[[tokens]]\nname = 'one'\nvalue = 'one-one-one-one-one'\n"
        "[[tokens]]\nname = 'two'\nvalue = 'two-two-two-two-two'\n"
        "[[tokens]]\nname = 'all'\nvalue = 'all-all-all-all-all'\nshare = 'large'\n"
        "[[shares]]\nname = 'small'\nmemory_mib = 20480\n[[shares]]\nname = 'large'\n"
    )
    running = Running.start(config, tmp_path, "log")
    running.wait_ready()
    yield str(running.endpoint)
    running.end()


def test_a_share_bounds_a_tenants_sessions_together(two_tenants: str) -> None:
    clients = [Client(two_tenants, VGPU_TOKEN=f"{name}-{name}-{name}-{name}-{name}") for name in ("one", "one", "two")]
    first, second, other = clients
    for client in clients:
        client("free")
    assert first("total") == 20
    assert first("take 15") == 0
    assert second("free") < 5
    assert second("take 6") == OUT_OF_MEMORY
    assert second("take 3") == 0
    assert other("take 15") == 0
    assert first("give") == 0
    assert second("take 14") == 0
    whole = Client(two_tenants, VGPU_TOKEN="all-all-all-all-all")
    assert whole("total") > 70
    assert whole("take 50") == OUT_OF_MEMORY  # all tenants use the same card's memory
    assert whole("take 40") == 0
    for client in (*clients, whole):
        client.kill()
