"""A vgpud for one program: started on a socket in a fresh directory, which is removed afterwards."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from vgpud.endpoint import UnixEndpoint
from vgpud.supervision.child_environment import child_environment

if TYPE_CHECKING:
    from types import TracebackType

_STOP_TIMEOUT_S = 8.0  # the time for a drain, and a margin


class PrivateDaemonError(Exception):
    """The private vgpud did not start; the text is for the user."""


class PrivateDaemon:
    """Context manager: while it is open, a vgpud answers at `endpoint`.

    At exit it drains or is killed, and its workers end with it; then its directory is removed. If this
    process is killed outright, the daemon sees its standard input close and drains by itself.
    """

    def __init__(
        self, gpus: str | None, *, config: Path | None = None, log: Path | None = None, timeout_s: float = 30.0
    ) -> None:
        """`log`: a file for the daemon's log; None: this process's standard error."""
        self._gpus = gpus
        self._config = config
        self._log = log
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: Path | None = None

    @property
    def endpoint(self) -> UnixEndpoint:
        """Where the daemon answers."""
        return UnixEndpoint(f"{self._directory}/vgpud.sock")

    def __enter__(self) -> PrivateDaemon:
        try:
            self._directory = Path(tempfile.mkdtemp(prefix="vgpu-"))  # mode 0700
            self._start(self._directory)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self, directory: Path) -> None:
        if importlib.util.find_spec("vgpud.__main__") is None:
            raise PrivateDaemonError(
                "this installation has the guest's commands alone, no vgpud to simulate a device: "
                "set VGPU_ENDPOINT to a vgpud's, or install the vgpud package (docs/packages.md)"
            )
        command = [sys.executable, "-P", "-m", "vgpud", "--private", str(directory)]
        if self._config is not None:
            command += ["--config", str(self._config)]
        if self._gpus is not None:
            command += ["--gpus", self._gpus]
        notify_path = str(directory / "notify")
        with contextlib.ExitStack() as stack:
            ready = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            log = stack.enter_context(self._log.open("wb")) if self._log is not None else None
            ready.bind(notify_path)
            self._process = subprocess.Popen(
                command,
                env=child_environment() | {"NOTIFY_SOCKET": notify_path},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,  # None: this process's, because the daemon's warnings are for the user
                start_new_session=True,  # ^C is for the program
            )
            pidfd = os.pidfd_open(self._process.pid)
            try:
                readable, _, _ = select.select([ready.fileno(), pidfd], [], [], self._timeout_s)
            finally:
                os.close(pidfd)
            if ready.fileno() not in readable:
                how = "ended at once" if readable else f"was not ready within {self._timeout_s:.0f} s"
                raise PrivateDaemonError(f"the private vgpud {how}")

    def drain(self, timeout_s: float) -> bool:
        """End the daemon after its sessions, whose workers write their last lines into the log meanwhile. False: it did
        not end within `timeout_s`, or it failed. `limits.drain_timeout_s` bounds the same wait."""
        if self._process is None:
            return False
        self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s) == 0
        return False

    def _stop(self) -> None:
        process = self._process
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()  # tells the daemon to drain
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_TIMEOUT_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self._process = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
