"""Worker processes: some kept ready, one given to each client that attaches, every one reaped and its end logged."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .log import get_logger
from .worker_process import Worker, spawn_worker

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from .config import LimitsConfig
    from .metrics import Metrics

_BACKOFF_FIRST_S = 0.25
_BACKOFF_LAST_S = 30.0
_HAND_OVER_ATTEMPTS = 3


class WorkerStartError(Exception):
    """No worker can be had now; the text is for the client."""


def default_command(backend: str) -> list[str]:
    """`-P` keeps the working directory off the module path: a worker runs our code, wherever vgpud was started."""
    return [sys.executable, "-P", "-m", "vgpud.worker", "--backend", backend]


class Supervisor:
    """Owns every worker process. All methods run on the event loop."""

    def __init__(self, command: list[str], limits: LimitsConfig, metrics: Metrics) -> None:
        self._command = command
        self._limits = limits
        self._metrics = metrics
        self._log = get_logger()
        self._workers: set[Worker] = set()
        self._spares: list[Worker] = []
        self._failures_in_row = 0
        self._refill: asyncio.TimerHandle | None = None
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def worker_count(self) -> int:
        """Living worker processes, spares included."""
        return len(self._workers)

    @property
    def spare_pids(self) -> list[int]:
        """The processes that wait for a client."""
        return [worker.pid for worker in self._spares]

    def start(self) -> None:
        """Start the spare workers."""
        self._fill()

    def set_limits(self, limits: LimitsConfig) -> None:
        """Take reloaded limits; superfluous spares are ended."""
        self._limits = limits
        while len(self._spares) > limits.spare_workers:
            self._spares.pop().terminate()
        self._fill()

    def hand_over(
        self,
        sock: socket.socket,
        assignment: dict[str, Any],
        *,
        client_pidfd: int | None,
        on_end: Callable[[Worker], None],
    ) -> Worker:
        """Give a client's socket to a worker and close ours.

        Args:
            sock: the client's socket; afterwards the worker has the only copy, so its death is the client's.
            assignment: what the worker must know (see worker/entry.py); under 64 KiB as msgpack.
            client_pidfd: watched, and closed, by us: a worker that outlives its client for long is killed.
            on_end: called once, when the worker has been reaped.
        Raises:
            WorkerStartError: nothing was handed over and the caller still owns everything.
        """
        for _ in range(_HAND_OVER_ATTEMPTS):
            worker = self._spares.pop(0) if self._spares else self._spawn()
            if worker is None:
                break
            sock.setblocking(True)  # the flag is the file description's, which the executor shares
            try:
                worker.assign(sock, assignment)
            except OSError as error:
                self._log.warning("worker did not take a session", worker=worker.pid, error=str(error))
                worker.kill()
                sock.setblocking(False)
                continue
            sock.close()
            worker.on_end = on_end
            worker.watch_client(client_pidfd, self._limits.worker_exit_timeout_s, self._count_kill)
            worker.expect_attached(self._limits.worker_start_timeout_s, self._count_kill)
            asyncio.get_running_loop().call_soon(self._fill)
            return worker
        raise WorkerStartError("no worker process could be started")

    async def drain(self) -> None:
        """SIGTERM to every worker; SIGKILL to those left after the deadline; return when all are reaped."""
        self._stopping = True
        if self._refill is not None:
            self._refill.cancel()
        self._spares.clear()
        for worker in list(self._workers):
            worker.terminate()
        try:
            async with asyncio.timeout(self._limits.drain_timeout_s):
                await self._idle.wait()
        except TimeoutError:
            for worker in list(self._workers):
                self._log.warning("worker ignored SIGTERM", worker=worker.pid)
                worker.kill()
                self._count_kill()
            await self._idle.wait()

    def _count_kill(self) -> None:
        self._metrics.workers_killed += 1

    def _fill(self) -> None:
        if self._refill is not None:
            return  # backing off
        while not self._stopping and len(self._spares) < self._limits.spare_workers:
            worker = self._spawn()
            if worker is None:
                self._back_off()
                return
            self._spares.append(worker)

    def _back_off(self) -> None:
        """Workers that fail to start are tried again ever more slowly, so that a broken installation does not spin."""
        delay_s = min(_BACKOFF_LAST_S, _BACKOFF_FIRST_S * 2 ** min(self._failures_in_row, 10))
        self._failures_in_row += 1

        def again() -> None:
            self._refill = None
            self._fill()

        if self._refill is None and not self._stopping:
            self._refill = asyncio.get_running_loop().call_later(delay_s, again)

    def _spawn(self) -> Worker | None:
        try:
            worker = spawn_worker(self._command, worker_environment(), on_ready=self._ready, on_exit=self._exited)
        except OSError as error:
            self._log.error("worker cannot be started", command=self._command[0], error=str(error))
            return None
        self._workers.add(worker)
        self._idle.clear()
        self._metrics.workers_started += 1
        return worker

    def _ready(self, _worker: Worker) -> None:
        self._failures_in_row = 0

    def _exited(self, worker: Worker) -> None:
        self._workers.discard(worker)
        if not self._workers:
            self._idle.set()
        self._metrics.workers_ended += 1
        if worker.failed and not self._stopping:
            self._metrics.workers_failed += 1
        log = self._log.warning if worker.failed and not self._stopping else self._log.info
        log("worker ended", session=worker.session, worker=worker.pid, how=worker.how_it_ended, reason=worker.reason)
        if worker in self._spares:
            self._spares.remove(worker)
            self._back_off()
        if worker.on_end is not None:
            worker.on_end(worker)


def worker_environment() -> dict[str, str]:
    """A worker's environment: only what it needs, and our own package first on its path."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "CACHE_DIRECTORY", "TMPDIR")
    environment = {key: value for key, value in os.environ.items() if key in kept or key.startswith("VGPU_")}
    package_parent = str(Path(__file__).resolve().parent.parent)
    inherited = [str(Path(part).resolve()) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    environment["PYTHONPATH"] = os.pathsep.join([package_parent, *inherited])
    return environment
