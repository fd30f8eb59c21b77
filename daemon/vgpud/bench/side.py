"""The sides that are compared: the driver itself, and a vgpud for each channel."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpu_guest.libraries import LIBRARIES

from vgpud.cli.admin_client import AdminClient
from vgpud.supervision.child_environment import child_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 15.0
_POLL_S = 0.02

# Channels of a vgpud that the benchmark starts: shared memory, a unix socket without shared memory, TCP on loopback.
CHANNELS = ("shm", "unix", "tcp")


class BenchError(Exception):
    """The measurement cannot be made; the text is for the user."""


@dataclass(slots=True)
class Side:
    """The place where work runs. `environment` replaces vgpu's variables in a program's environment."""

    name: str
    environment: dict[str, str]

    def of_program(self) -> dict[str, str]:
        """A program's whole environment."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("VGPU_")}
        path = ":".join(part for part in kept.get("LD_LIBRARY_PATH", "").split(":") if part and not _is_ours(part))
        merged = {**kept, "LD_LIBRARY_PATH": path} | self.environment
        if self.environment.get("LD_LIBRARY_PATH") and path:
            merged["LD_LIBRARY_PATH"] = f"{self.environment['LD_LIBRARY_PATH']}:{path}"
        return merged


def _is_ours(folder: str) -> bool:
    return Path(folder).resolve() == LIBRARIES


def native(libcuda: str) -> Side:
    """The driver itself: found as programs find it, or in the folder of an absolute `libcuda`."""
    folder = os.path.dirname(libcuda) if os.path.isabs(libcuda) else ""
    return Side("native", {"LD_LIBRARY_PATH": folder} if folder else {})


def remote(name: str, endpoint: str, token: str | None = None) -> Side:
    """An already running vgpud."""
    if not (LIBRARIES / "libcuda.so.1").exists():
        raise BenchError(f"{LIBRARIES}/libcuda.so.1 is missing: this build has no guest library")
    environment = {"VGPU_ENDPOINT": endpoint, "LD_LIBRARY_PATH": str(LIBRARIES)}
    return Side(name, environment | ({} if token is None else {"VGPU_TOKEN": token}))


@dataclass(slots=True)
class Host:
    """A vgpud that the benchmark starts, for one channel. Context manager."""

    channel: str
    folder: Path
    backend: str
    gpus: str
    libcuda: str
    warm_workers: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _token: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def side(self) -> Side:
        """How programs reach this vgpud."""
        return remote(self.channel, self._endpoint, self._token if self.channel == "tcp" else None)

    @property
    def _endpoint(self) -> str:
        if self.channel == "tcp":
            return str(self.status()["listen"][0])
        return f"unix:{self.folder}/s"

    def __enter__(self) -> Host:
        self.folder.mkdir(parents=True, exist_ok=True)
        listen = "tcp://127.0.0.1:0" if self.channel == "tcp" else f"unix:{self.folder}/s"
        quoted = {"libcuda": self.libcuda, "gpus": self.gpus, "backend": self.backend}
        config = [
            f"listen = [{json.dumps(listen)}]",
            f"admin = {json.dumps(f'{self.folder}/a')}",
            *(f"{key} = {json.dumps(value)}" for key, value in quoted.items()),
            f"shared_memory = {json.dumps(self.channel != 'unix')}",
            f"cache_dir = {json.dumps(str(self.folder / 'cache'))}",
            f"limits.warm_workers = {self.warm_workers}",
            "log.level = 'warning'",
            *(("[[tokens]]", "name = 'bench'", f"value = '{self._token}'") if self.channel == "tcp" else ()),
        ]
        path = self.folder / "vgpud.toml"
        path.touch(mode=0o600)
        path.write_text("\n".join(config) + "\n")
        command = [sys.executable, "-P", "-m", "vgpud", "--config", str(path)]
        self._process = subprocess.Popen(command, env=child_environment(), stdin=subprocess.DEVNULL)
        try:
            self.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def status(self) -> dict[str, Any]:
        """The status that vgpud reports on its admin socket. Raises OSError."""
        document: dict[str, Any] = AdminClient(Path(f"{self.folder}/a")).get("status")
        return document

    def wait_ready(self) -> None:
        """Wait until a spare worker is ready, and a warm one (with a context) if warm workers are configured."""
        assert self._process is not None
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise BenchError(f"vgpud for {self.channel} ended with {self._process.returncode}")
            try:
                status = self.status()
            except (OSError, ValueError):
                status = {}
            if status.get("spare_workers") and (not self.warm_workers or status.get("warm_workers")):
                return
            time.sleep(_POLL_S)
        raise BenchError(f"vgpud for {self.channel} was not ready within {_START_TIMEOUT_S:.0f} s")


def hosts(
    channels: tuple[str, ...], folder: Path, backend: str, gpus: str, libcuda: str, *, warm_workers: int = 0
) -> Iterator[Host]:
    """A Host for each channel, not entered yet."""
    for channel in channels:
        yield Host(channel, folder / f"{channel}{warm_workers or ''}", backend, gpus, libcuda, warm_workers)
