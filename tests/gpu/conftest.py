"""A vgpud with the real driver behind it, for tests marked `gpu` (`make test-gpu` on a machine with a card)."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.conftest import ROOT, Command, merged, run_command
from tests.daemon.running import Running
from tests.programs.toolchain import CALL_THE_DEVICE_RUNTIME, OF_HOPPER

LIBRARIES = ROOT / "build/guest"


@dataclass(frozen=True)
class RemotedRun:
    """`remoted_run(command, timeout_s=300)` runs `command` on the card through vgpud."""

    env: dict[str, str]
    shared_memory: bool

    def __call__(self, command: Command, timeout_s: float = 300) -> CompletedProcess[str]:
        return run_command(command, self.env, timeout_s)


@pytest.fixture(scope="session", params=[True, False], ids=["shared-memory", "socket"])
def remoted_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemotedRun]:
    """A RemotedRun for each channel."""
    directory = tmp_path_factory.mktemp("gpu")
    config = directory / "vgpud.toml"
    config.write_text(
        f"listen = ['unix:{directory}/vgpud.sock']\nadmin = '{directory}/admin.sock'\nbackend = 'cuda'\n"
        f"libcuda = '{os.environ.get('VGPU_TEST_LIBCUDA', 'libcuda.so.1')}'\n"
        f"shared_memory = {str(request.param).lower()}\ncache_dir = '{directory}/cache'\n"
    )
    running = Running.start(config, directory, "log")
    running.wait_ready()
    env = merged({"VGPU_ENDPOINT": f"unix:{directory}/vgpud.sock", "LD_LIBRARY_PATH": str(LIBRARIES)})

    yield RemotedRun(env, request.param)
    isolation, log = running.status()["isolation_missing"], running.log
    running.end()
    print(f"isolation_missing: {isolation}")
    # System calls of the driver that the seccomp filter (worker/seccomp.py) does not list are logged and get ENOSYS.
    assert "unknown system call" not in log, [line for line in log.splitlines() if "unknown system call" in line]
    assert "no seccomp filter" not in log


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of tests/programs, built by the machine's own nvcc."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(nvcc).exists():
        pytest.fail("no nvcc on this machine")
    directory = tmp_path_factory.mktemp("programs")
    folder = ROOT / "tests/programs"
    old, new = ["-gencode", "arch=compute_75,code=compute_75"], ["-gencode", "arch=compute_90,code=sm_90"]
    builds = []
    for name in sorted(path.stem for path in folder.glob("*.cu") if "." not in path.stem):
        parts = sorted(folder.glob(f"{name}.*.cu"))
        command = [
            nvcc,
            "-std=c++17",
            *([] if name in OF_HOPPER else old),
            *new,
            *(["-rdc=true"] if parts or name in CALL_THE_DEVICE_RUNTIME else []),
            f"-I{folder}",
        ]
        builds.append(subprocess.Popen([*command, "-o", directory / name, folder / f"{name}.cu", *parts]))
    assert [build.wait(300) for build in builds] == [0] * len(builds)
    return directory
