"""Fixtures that run a command as a user would: under `vgpu run`, or natively on a machine with a GPU."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.event_loop import callback_errors
from tests.leftovers import pytest_runtest_call, pytest_runtest_protocol
from tests.patience import PATIENCE_S

__all__ = ["pytest_runtest_call", "pytest_runtest_protocol"]  # hooks

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VGPU = [sys.executable, "-c", "import sys; from vgpud.cli.main import vgpu; sys.exit(vgpu(prog_name='vgpu'))"]
# Folders that take minutes, longest first: so that no process runs one of them alone at the end.
LONGEST_FIRST = ("shim", "programs", "cudart", "guest", "daemon", "packaging", "clients")

Command = Sequence[str | int | Path]
Run = Callable[..., CompletedProcess[str]]


def merged(env: Mapping[str, str] | None) -> dict[str, str]:
    """This process's environment with `env` on top; the parts of vgpu come from this checkout."""
    path = os.pathsep.join(filter(None, [str(ROOT / "daemon"), str(ROOT / "guest"), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, **(env or {})}


def run_command(command: Command, env: Mapping[str, str] | None, timeout_s: float) -> CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout_s, env=env)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under pytest-xdist the folders that take longest come first."""

    def order(item: pytest.Item) -> int:
        part = item.path.relative_to(HERE).parts[0]
        return LONGEST_FIRST.index(part) if part in LONGEST_FIRST else len(LONGEST_FIRST)

    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=order)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """A folder's tests stay in one process, in their order, so that what they set up and build exists once.

    (Marks for `--dist loadgroup` have no effect: pytest-xdist 3.8 writes them where pytest 9.2 does not look.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class FolderScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return os.path.dirname(nodeid.split("::")[0])

    return FolderScheduling(config, log)


@pytest.fixture(autouse=True)
def _callbacks_succeed() -> Iterator[None]:
    """An exception in a callback of an event loop fails the test that runs the loop."""
    with callback_errors() as errors:
        yield
    if errors:
        raise errors[0]


@pytest.fixture(scope="session")
def vgpu_run() -> Run:
    """`vgpu_run(command, gpu="h100", env=None, timeout_s=…)` runs the command under `vgpu run` on a simulated GPU.

    `options` are further options of `vgpu run`.
    """

    def run(
        command: Command,
        gpu: str = "h100",
        env: Mapping[str, str] | None = None,
        timeout_s: float = PATIENCE_S,
        options: Sequence[str] = (),
    ) -> CompletedProcess[str]:
        return run_command([*VGPU, "run", "--gpu", gpu, *options, "--", *command], merged(env), timeout_s)

    return run


@contextmanager
def vgpud_of(gpus: str, folder: Path) -> Iterator[str]:
    """One vgpud for several programs, as to start one takes longer than most programs; yields its endpoint."""
    from vgpud.cli.private_daemon import PrivateDaemon

    with PrivateDaemon(gpus, log=folder / "log", timeout_s=PATIENCE_S) as daemon:
        yield str(daemon.endpoint)


@pytest.fixture(scope="module")
def h100(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of the module's vgpud, which simulates an H100."""
    with vgpud_of("h100", tmp_path_factory.mktemp("h100")) as endpoint:
        yield endpoint


def run_on(endpoint: str) -> Run:
    """`vgpu_run` for a vgpud that runs already."""

    def run(
        command: Command,
        env: Mapping[str, str] | None = None,
        timeout_s: float = PATIENCE_S,
        options: Sequence[str] = (),
    ) -> CompletedProcess[str]:
        return run_command([*VGPU, "run", "--endpoint", endpoint, *options, "--", *command], merged(env), timeout_s)

    return run


@pytest.fixture(scope="module")
def h100_run(h100: str) -> Run:
    """`vgpu_run` on the module's H100."""
    return run_on(h100)


@pytest.fixture(scope="session")
def native_run() -> Run:
    """`native_run(command, env=None, timeout_s=…)` runs the command on the machine's own driver."""

    def run(
        command: Command, env: Mapping[str, str] | None = None, timeout_s: float = PATIENCE_S
    ) -> CompletedProcess[str]:
        return run_command(command, {**os.environ, **(env or {})}, timeout_s)

    return run
