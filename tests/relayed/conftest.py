"""The cuda backend without a card: its real driver is vgpu's libcuda, whose GPU another vgpud simulates.

    program -> libcuda -> vgpud B, backend = "cuda" -> worker -> libcuda -> vgpud A, backend = "simulator" -> worker

Only the seccomp filter of B's worker (worker.py) is changed for that: it permits a socket. B's processes get A's
endpoint in VGPU_ENDPOINT, and the NVML that they load is vgpu's, too.
B's driver differs from NVIDIA's in these points, besides the simulator's own limits:

- there is no cuStreamWriteValue32: host functions write the flags, and only one of them runs at a time, so a blocked
  host function delays the flags of all streams
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.conftest import ROOT, Command, merged, run_command
from tests.daemon.running import Running
from tests.leftovers import kept
from tests.patience import PATIENCE_S

LIBRARIES = ROOT / "build/guest"
WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True)
class Relay:
    """`relay(command)` runs the command on B, over shared memory or a plain socket."""

    env: dict[str, str]
    shared_memory: bool

    def __call__(self, command: Command, timeout_s: float = PATIENCE_S, **env: str) -> CompletedProcess[str]:
        return run_command(command, self.env | env, timeout_s)

    def python(self, program: str, **env: str) -> str:
        """Run a Python program, given as text; return its standard output."""
        done = self([sys.executable, "-c", program], **env)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout


def start(directory: Path, name: str, config: str, env: dict[str, str]) -> Running:
    path = directory / f"{name}.toml"
    path.write_text(
        f"listen = ['unix:{directory}/{name}.sock']\nadmin = '{directory}/{name}.admin'\n"
        f"cache_dir = '{directory}/{name}.cache'\n{config}\n"
    )
    running = Running.start(path, directory, f"{name}.log", env)
    running.admin_path = directory / f"{name}.admin"
    running.wait_ready()
    return running


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """vgpud A, which B sees as the driver of a machine with two H100s."""
    running = start(tmp_path_factory.mktemp("driver"), "a", "gpus = 'h100:2'", {})
    yield running
    running.end()


def start_relay(driver: Running, directory: Path, shared_memory: bool, more: str = "") -> tuple[Running, Relay]:
    """vgpud B, with `more` in its configuration."""
    config = (
        f"backend = 'cuda'\nlibcuda = '{LIBRARIES}/libcuda.so.1'\nshared_memory = {str(shared_memory).lower()}\n"
        f"worker_command = {[sys.executable, str(WORKER), '--backend', 'cuda']!r}\n{more}"
    )
    environment = {"VGPU_ENDPOINT": str(driver.endpoint), "LD_LIBRARY_PATH": str(LIBRARIES)}
    running = start(directory, "b", config, environment)
    env = merged({"VGPU_ENDPOINT": str(running.endpoint), "LD_LIBRARY_PATH": str(LIBRARIES)})
    return running, Relay(env, shared_memory)


@pytest.fixture(scope="session")
def relays(driver: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bool], Relay]]:
    """`relays(shared_memory)`: a Relay, started at its first use."""
    started: list[Running] = []

    @cache
    def relay_of(shared_memory: bool) -> Relay:
        with kept():
            running, relay = start_relay(driver, tmp_path_factory.mktemp("relay"), shared_memory)
        started.append(running)
        return relay

    yield relay_of
    for running in started:
        running.end()


@pytest.fixture(params=[True, False], ids=["shared-memory", "socket"])
def relay(request: pytest.FixtureRequest, relays: Callable[[bool], Relay]) -> Relay:
    """A Relay for each channel."""
    return relays(request.param)


@pytest.fixture
def shared_relay(relays: Callable[[bool], Relay]) -> Relay:
    """The Relay over shared memory."""
    return relays(True)
