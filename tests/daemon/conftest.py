"""A running vgpud for a test: the real program in a process of its own, with the fake worker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.daemon.running import Running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FAKE_WORKER = Path(__file__).with_name("fake_worker.py")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """start(worker="echo", extra="toml text", listen=[...]) starts a vgpud; all of them are ended after the test.

    `worker` is the fake worker's mode; None: the real worker.
    """
    started: list[Running] = []

    def start_one(worker: str | None = "echo", extra: str = "", listen: list[str] | None = None) -> Running:
        config = tmp_path / "vgpud.toml"
        listen = listen or [f"unix:{tmp_path}/vgpud.sock"]
        config.write_text(
            f"listen = {listen!r}\n"
            f"admin = '{tmp_path}/admin.sock'\n"
            f"gpus = 'h100:2,t4'\n"
            + (f"worker_command = {[sys.executable, str(FAKE_WORKER), worker]!r}\n" if worker else "")
            + extra
        )
        running = Running.start(config, tmp_path, f"log-{len(started)}")
        started.append(running)
        running.wait_ready()
        return running

    yield start_one
    for running in started:
        running.end()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One vgpud for all tests of a module that leave it as they found it."""
    directory = tmp_path_factory.mktemp("shared")
    config = directory / "vgpud.toml"
    config.write_text(
        f"listen = ['unix:{directory}/vgpud.sock']\nadmin = '{directory}/admin.sock'\n"
        f"worker_command = {[sys.executable, str(FAKE_WORKER), 'echo']!r}\n"
    )
    running = Running.start(config, directory, "log")
    running.wait_ready()
    yield running
    running.end()
