"""Runs a program on a private vgpud, whose workers log what the program's kernels do."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import run as runner
from .fail import fail
from .guest_libraries import Libraries, give_libraries
from .host_stack import VARIABLE, HostStack, read_stacks
from .private_daemon import PrivateDaemon, PrivateDaemonError
from .status import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

# Lines of vgpud's log that tell of a killed worker or of suppressed lines.
_LOST = re.compile(r'worker killed |worker ended .* how="signal |held_back=')
_LAST_WORDS_S = 60  # time to wait for a worker's last lines
_CONFIG = f"""
[log]
lines_per_session_s = 1000000
[limits]
worker_exit_timeout_s = {_LAST_WORDS_S}
drain_timeout_s = {_LAST_WORDS_S}
"""


@dataclass(frozen=True, slots=True)
class Watched:
    """A run: the program's exit code, the lines of vgpud's log, and whether none of its lines are missing.
    `stacks`: the host call stacks that the lines name."""

    code: int
    lines: list[str]
    is_whole: bool
    stacks: dict[int, HostStack]


def run_watched(
    command: Sequence[str], setting: str, gpus: str | None, timeout_s: float | None, *, with_stacks: bool = False
) -> Watched:
    """Run a program on simulated devices.

    Args:
        setting: The configuration line that selects what workers log.
        with_stacks: Have the program save the host call stacks of its allocations and launches.
        gpus: Profiles, as `vgpu run --gpu` takes them; None: that command's default.
    """
    libraries = Libraries()
    libraries.check()
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
        environment = dict(os.environ)
        give_libraries(environment, command[0], daemon.endpoint, libraries)
        stacks = Path(folder) / "stacks"
        stacks.mkdir()
        if with_stacks:
            environment[VARIABLE] = str(stacks)
        code = runner.supervise(command, environment, timeout_s)
        has_ended = daemon.drain(_LAST_WORDS_S + 1)
        lines = log.read_text(errors="replace").splitlines()
        return Watched(code, lines, has_ended and not any(_LOST.search(line) for line in lines), read_stacks(stacks))
