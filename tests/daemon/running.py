"""One vgpud process under test."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpud.cli.admin_client import AdminClient
from vgpud.cli.client import Client
from vgpud.endpoint import Endpoint, parse_endpoint

from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[2]
PATHS = [str(ROOT / "daemon"), str(ROOT / "guest"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(PATHS)}


def wait_until(condition: Callable[[], Any], timeout_s: float = PATIENCE_S) -> Any:
    """Poll until `condition` returns something true and return that; fail when it never does."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"still not true after {timeout_s} s"
        time.sleep(0.01)


def only(found: Callable[[], list[Any]]) -> Any:
    """Wait until `found` returns a single item, and return it: items of earlier tests disappear a moment later."""
    return wait_until(lambda: now if len(now := found()) == 1 else None)[0]


def process_exists(pid: int) -> bool:
    """Whether a process lives (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    """Living direct children of a process; none, if it is gone."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for child in found if process_exists(int(child))]


def launchers(pid: int) -> list[int]:
    """The launchers of a vgpud's workers: the children of its loader, which are orphans once that has died."""
    return [launcher for loader in children(pid) for launcher in children(loader)]


@dataclass
class Running:
    """A vgpud process, and the paths of its configuration, log and admin socket."""

    process: subprocess.Popen[bytes]
    config: Path
    log_path: Path
    admin_path: Path

    @classmethod
    def start(
        cls,
        config: Path,
        directory: Path,
        log_name: str,
        env: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
    ) -> Running:
        """Start vgpud; `before` is a command that executes the rest of its command line."""
        log_path = directory / log_name
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [*before, sys.executable, "-m", "vgpud", "--config", str(config)],
                env=ENVIRONMENT | dict(env or {}),
                stdin=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        return cls(process, config, log_path, directory / "admin.sock")

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def wait_ready(self) -> None:
        """End it if it does not become ready."""
        try:
            wait_until(lambda: " ready " in self.log or self.process.poll() is not None)
            assert self.process.poll() is None, self.log
        except BaseException:
            self.end()
            raise

    def wait_log(self, pattern: str) -> re.Match[str]:
        return wait_until(lambda: re.search(pattern, self.log))

    @property
    def endpoint(self) -> Endpoint:
        """The first endpoint that vgpud listens on."""
        return parse_endpoint(re.search(r"ready listen=\"?\['([^']+)'", self.log)[1])

    def client(self, **options: Any) -> Client:
        return Client(self.endpoint, **{"timeout_s": PATIENCE_S} | options)

    def raw(self) -> socket.socket:
        """A connection that has sent nothing."""
        from vgpud.endpoint import connect

        return connect(self.endpoint, timeout_s=PATIENCE_S)

    def status(self) -> dict[str, Any]:
        return self.admin.get("status")

    @property
    def admin(self) -> AdminClient:
        """The administrator's interface."""
        return AdminClient(self.admin_path)

    def measured_sessions(self) -> list[dict[str, Any]]:
        """All sessions, with the memory of each: vgpud leaves it out when a busy worker answers late."""

        def measured() -> list[dict[str, Any]]:
            sessions = self.admin.get("sessions")["sessions"]
            return sessions if all(session["memory_nbytes"] for session in sessions) else []

        return wait_until(measured)

    def end(self) -> None:
        """Send SIGTERM, then SIGINT so that vgpud does not wait for sessions; all its processes are gone afterwards."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                raise
        self.process.wait()


CLIENT = """
import sys
from vgpud.cli.client import Client
from vgpud.endpoint import parse_endpoint
client = Client(parse_endpoint(sys.argv[1]), timeout_s=200)
client.hello()
print(client.attach().worker, flush=True)
sys.stdin.read()
"""


def vgpud_with_real_workers(directory: Path, more: str = "") -> Iterator[Running]:
    """For a fixture to yield from: a vgpud with real workers that simulate; `more` is added to its configuration."""
    config = directory / "vgpud.toml"
    config.write_text(
        f"listen = ['unix:{directory}/vgpud.sock']\nadmin = '{directory}/admin.sock'\ncache_dir = '{directory}'\n{more}"
    )
    running = Running.start(config, directory, "log")
    running.wait_ready()
    try:
        yield running
    finally:
        running.end()


def start_client(running: Running) -> subprocess.Popen[bytes]:
    """A client in a process of its own, attached."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(running.endpoint)],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline().strip().isdigit()
    return process
