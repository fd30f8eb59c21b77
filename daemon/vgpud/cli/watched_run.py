"""A program run on a vgpud of its own whose workers write into the log what its kernels do."""

from __future__ import annotations

import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from vgpu_guest.cudart import FOLDER
from vgpu_guest.libraries import LIBRARIES

from . import run as runner
from .fail import fail
from .private_daemon import PrivateDaemon, PrivateDaemonError
from .status import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

_LAST_WORDS_S = 60  # what a worker says at its end is waited for
_CONFIG = f"""
[log]
lines_per_session_s = 1000000
[limits]
worker_exit_timeout_s = {_LAST_WORDS_S}
drain_timeout_s = {_LAST_WORDS_S}
"""


def run_watched(
    command: Sequence[str], setting: str, gpus: str | None, timeout_s: float | None
) -> tuple[int, list[str]]:
    """Run a program on simulated devices; its exit code, and the lines of vgpud's log.

    Args:
        setting: The line of the configuration that says what workers are to write.
        gpus: Profiles, as `vgpu run --gpu` takes them; None: its default.
    """
    library = LIBRARIES / "libcuda.so.1"
    if not library.exists():
        fail(f"{library} is missing: this build has no guest library (run `make shim`)", ExitStatus.SOFTWARE)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, runner.interrupted)
    with tempfile.TemporaryDirectory(prefix="vgpu-watched-") as folder, ExitStack() as stack:
        config, log = Path(folder) / "vgpud.toml", Path(folder) / "log"
        config.write_text(setting + _CONFIG)
        try:
            daemon = PrivateDaemon(gpus or runner.DEFAULT_GPU, config=config, log=log)
            stack.enter_context(daemon)
        except PrivateDaemonError as error:
            fail(str(error), ExitStatus.UNAVAILABLE)
        environment = runner.environment_of(command[0], daemon.endpoint, library, None)
        runner.choose_cudart("auto", command[0], environment, LIBRARIES / FOLDER, verbose=False)
        runner.choose_torch(wanted=True, program=command[0], environment=environment, library_directory=LIBRARIES)
        runner.steer(daemon.endpoint, environment, command[0], verbose=False)
        code = runner.supervise(command, environment, timeout_s)
        daemon.drain(_LAST_WORDS_S + 1)
        return code, log.read_text(errors="replace").splitlines()
