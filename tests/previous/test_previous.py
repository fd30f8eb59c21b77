"""The previous release together with this one: the old library with this vgpud, this library with the old vgpud."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.running import Running, vgpud_with_real_workers
from tests.previous.build import environment, previous, why_not
from tests.programs.toolchain import cuda13
from tests.shim.client import ROOT

pytestmark = [pytest.mark.ecosystem, pytest.mark.client, pytest.mark.timeout(1800)]
PROGRAMS = ("saxpy", "matmul", "streams", "graphs", "pools", "host_function", "symbols", "ipc")
FOR_THIS_LIBRARY = ("threads",)  # fails with the old library, whose fault cc6a3e2 mended
OF_SHARED_MEMORY = ("pinned",)  # mapped memory was error 801 on a plain socket


@pytest.fixture(scope="module")
def tree() -> Path:
    if reason := why_not():
        pytest.skip(reason)
    return previous()


@pytest.fixture(params=["shared memory", "socket"])
def now(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path, f"shared_memory = {str(request.param == 'shared memory').lower()}\n")


@pytest.fixture(params=["shared memory", "socket"])
def then(request: pytest.FixtureRequest, tmp_path: Path, tree: Path) -> Iterator[Running]:
    config = tmp_path / "vgpud.toml"
    shared = str(request.param == "shared memory").lower()
    config.write_text(
        f"listen = ['unix:{tmp_path}/s']\nadmin = '{tmp_path}/admin.sock'\ncache_dir = '{tmp_path}'\n"
        f"shared_memory = {shared}\n"
    )
    running = Running.start(config, tmp_path, "log", environment(tree))
    running.wait_ready()
    yield running
    running.end()


def compute(running: Running, libraries: Path, *more: str) -> None:
    shares_memory = "shared_memory = false" not in running.config.read_text()
    for name in (*PROGRAMS, *more, *(OF_SHARED_MEMORY if shares_memory else ())):
        program = cuda13().build(name)
        env = {key: value for key, value in os.environ.items() if not key.startswith(("VGPU_", "CUDA_"))}
        env |= {"VGPU_ENDPOINT": str(running.endpoint), "LD_LIBRARY_PATH": str(libraries)}
        done = subprocess.run([program, "4099"], env=env, capture_output=True, text=True, timeout=300)
        assert re.search(rf"^ok {name}\b", done.stdout, re.MULTILINE), (name, done.stdout, done.stderr)


def test_its_library_computes_with_this_vgpud(now: Running, tree: Path) -> None:
    compute(now, tree / "build/guest")


def test_this_library_computes_with_its_vgpud(then: Running, tree: Path) -> None:
    assert str(tree) in Path(f"/proc/{then.process.pid}/environ").read_text()
    compute(then, ROOT / "build/guest", *FOR_THIS_LIBRARY)
