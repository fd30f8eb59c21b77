"""Client and worker in one program under ThreadSanitizer: `make tsan` (VGT_ROUNDS: rounds; VGT_SANITIZE: sanitizer)."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.races.build import build

SANITIZE = os.environ.get("VGT_SANITIZE", "thread")
ROUNDS = os.environ.get("VGT_ROUNDS", "3")
OPTIONS = {
    "TSAN_OPTIONS": "exitcode=66:history_size=4:atexit_sleep_ms=0",
    # The simulator handles SIGSEGV itself (CUDA's illegal address); a process that exits with running threads leaks.
    "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:handle_sigbus=0:allow_user_segv_handler=1",
}
USAGE = 2  # the exit status without a scenario
SCENARIOS = [
    ("work", "0"),
    ("work", "50"),
    ("full", "0"),
    ("threads", "50"),
    ("death", "0"),
    ("death", "50"),
    ("graphs", "50"),
]


@pytest.fixture(scope="module")
def command() -> list[str]:
    """The command that runs the program; a sanitizer may need setarch -R, as its own addresses must be free."""
    program = str(build(SANITIZE))
    for command in ([program], ["setarch", "-R", program]):
        done = subprocess.run(command, env={**os.environ, **OPTIONS}, capture_output=True, text=True, timeout=60)
        if done.returncode == USAGE:
            return command
    pytest.skip(f"the sanitizer ({SANITIZE}) cannot run here: {done.stderr.strip()[:300]}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("scenario", "spin_us"), [*SCENARIOS, ("exit", "50")])
def test_no_thread_touches_what_another_may_write(
    command: list[str], scenario: str, spin_us: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [*command, scenario, ROUNDS],
        env={**os.environ, **OPTIONS, "VGPU_SPIN_US": spin_us, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    where = sorted({line for line in done.stderr.splitlines() if line.startswith("SUMMARY")})
    assert done.returncode == 0, (where, done.stderr[:6000])
    assert scenario == "exit" or done.stdout == "done\n"
