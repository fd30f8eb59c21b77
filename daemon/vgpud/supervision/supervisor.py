"""Worker processes: some kept ready, one given to each client that attaches, every one reaped and its end logged."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from vgpud.log import get_logger

from .warm import WarmWorkers
from .worker_process import Worker, adopt_worker, spawn_worker

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from vgpud.config_tables import LimitsConfig
    from vgpud.metrics import Metrics
    from vgpud.serving.succession import Incoming

    from .spawner import Process, Spawner

_BACKOFF_FIRST_S = 0.25
_BACKOFF_LAST_S = 30.0
_FAILURES_BEFORE_REFUSAL = 2  # in a row: one may be chance, more mean a broken installation
_CACHE_CAP_NBYTES = 2**32  # the highest value in the documentation of NVIDIA's driver
_LOOK_S = 1.0  # between two checks for workers that a signal has stopped
_STARTING_CAP = 8  # workers that start at the same time: more would only make all of them late


class HasFileno(Protocol):
    """Anything with a file descriptor to pass on."""

    def fileno(self) -> int:
        """The descriptor."""


class WorkerStartError(Exception):
    """No worker is available now; the text is for the client."""


class WorkerGoneError(WorkerStartError):
    """The worker has just died; another one may succeed."""


def cache_environment(limits: LimitsConfig) -> dict[str, str]:
    """Variables that bound the compile cache of NVIDIA's driver, which reads them when it starts."""
    if limits.kernel_cache_nbytes == 0:
        return {"CUDA_CACHE_DISABLE": "1"}
    return {"CUDA_CACHE_MAXSIZE": str(min(limits.kernel_cache_nbytes, _CACHE_CAP_NBYTES))}


Environment = tuple[tuple[str, str], ...]  # variables of a worker's driver, which reads them when it starts


@dataclass(eq=False, slots=True)
class _Waiting:
    """A client that waits for a worker."""

    owner: object  # as Worker.owner
    environment: Environment
    future: asyncio.Future[Worker]


class Supervisor:
    """Owns every worker process. All methods run on the event loop.

    Where workers of one tenant share a user id (`shares_ids`), a waiting worker has an id that no other worker has and
    that belongs to no tenant yet. The first client that gets the worker assigns the id to its tenant: the tenant's
    further clients get workers that are started with this id, until its last worker has ended. So two tenants never
    have the same id, although a driver records facts about its process before the client is known.
    """

    def __init__(
        self,
        spawner: Spawner,
        limits: LimitsConfig,
        metrics: Metrics,
        *,
        shares_ids: bool = False,
        warm_orders: list[dict[str, Any]] | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            spawner: makes the processes; closed by stop().
            limits: see set_limits().
            metrics: the counters to update.
            shares_ids: whether workers of one tenant share a user id, as the backend requires; else each has its own.
            warm_orders: see WarmWorkers.
        """
        self._spawner = spawner
        self._limits = limits
        self._metrics = metrics
        self._log = get_logger()
        self._workers: set[Worker] = set()
        self._starting: set[Worker] = set()
        self._spares: list[Worker] = []
        self._warm = WarmWorkers(warm_orders or [], self._fill)
        self._shares_ids = shares_ids
        self._waiting: list[_Waiting] = []
        self._served_at = float("-inf")  # when a waiting client last got a worker, on the loop's clock
        self._failures_in_row = 0
        self._failure = ""
        self._refill: asyncio.TimerHandle | None = None
        self._stopping = False
        self._refusal = ""
        self._look: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def worker_count(self) -> int:
        """Living worker processes, spares included."""
        return len(self._workers)

    @property
    def workers_have_own_ids(self) -> bool:
        """Whether workers have user ids of their own, not vgpud's."""
        return bool(self._spawner.own_ids)

    @property
    def spare_pids(self) -> list[int]:
        """The processes that wait for a client."""
        return [worker.pid for worker in self._spares]

    @property
    def warm_pids(self) -> dict[int, list[int]]:
        """By device, the waiting processes that have already created a context."""
        return self._warm.pids

    def start(self) -> None:
        """Start the spare workers."""
        self._fill()
        self._look = asyncio.get_running_loop().call_later(_LOOK_S, self._end_stopped)

    def set_limits(self, limits: LimitsConfig) -> None:
        """Apply reloaded limits: end surplus workers without a client, and those that were started with other
        limits.
        """
        kept = cache_environment(limits) == cache_environment(self._limits)
        self._limits = limits
        while len(self._spares) > kept * limits.spare_workers:
            self._spares.pop().terminate()
        self._warm.limit(kept * limits.warm_workers)
        self._fill()

    def refuse(self, why: str) -> None:
        """Refuse all requests for workers from now on, the waiting ones included."""
        self._refusal = why
        self._fail_waiting(why)

    async def take(self, device: int = -1, tenant: object = None, environment: Environment = ()) -> Worker:
        """A worker that is ready to serve: one with a context on `device`, a spare, or one started now.

        Args:
            device: the one that the client will use first; -1: unknown.
            tenant: the client's; None: it cannot be told from others, so it shares a user id with nobody.
            environment: of a worker that is started for this client, as those that wait have none.

        Raises:
            WorkerStartError: no worker could be started.
        """
        if self._stopping:
            raise WorkerStartError("vgpud is stopping")
        if self._refusal:
            raise WorkerStartError(self._refusal)
        owner = self._owner(tenant)
        if not environment and (worker := self._pop_waiting(device, owner)) is not None:
            return worker
        if self._failures_in_row >= _FAILURES_BEFORE_REFUSAL and self._refill is not None:
            raise WorkerStartError(f"workers do not start: {self._failure}")
        future: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(owner, environment, future)
        self._waiting.append(waiting)
        if not environment:
            self._claim_starting(owner)
        self._fill()
        try:
            return await self._wait_turn(future)
        except (TimeoutError, asyncio.CancelledError) as error:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._keep_spare(future.result())  # it got ready just too late: keep it for the next client
            if isinstance(error, asyncio.CancelledError):
                raise
            raise WorkerStartError("no worker was ready in time") from None
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def _owner(self, tenant: object) -> object:
        """Who shall own a worker's user id; None: nobody, as the id is not shared."""
        if not self._shares_ids or self._spawner.own_ids is False:
            return None
        return object() if tenant is None else tenant

    def _may_have(self, owner: object, worker: Worker) -> bool:
        return worker.owner == owner or (worker.owner is None and not self._workers_of(owner))

    def _workers_of(self, owner: object) -> list[Worker]:
        return [] if owner is None else [worker for worker in self._workers if worker.owner == owner]

    def _claim_starting(self, owner: object) -> None:
        """Assign a worker that is being started as a spare to the owner, so that the owner's further workers get its
        user id at once.
        """
        if owner is not None and not self._workers_of(owner):
            for worker in self._starting:
                if worker.owner is None and worker.warm_device is None and not worker.environment:
                    worker.owner = owner
                    return

    def _pop_waiting(self, device: int, owner: object) -> Worker | None:
        """A waiting worker that the owner may have, if there is one; from now on it belongs to the owner."""
        if self._workers_of(owner):
            return None  # those that wait have other user ids
        worker = self._warm.pop(device)
        self._metrics.warm_workers_taken += worker is not None
        while worker is None and self._spares:
            spare = self._spares.pop(0)
            worker = None if spare.has_hung_up else spare  # one that has just died is still to be reaped
        if worker is not None:
            worker.owner = owner
        asyncio.get_running_loop().call_soon(self._fill)  # after the caller has handed over: starting takes a while
        return worker

    async def _wait_turn(self, future: asyncio.Future[Worker]) -> Worker:
        """Wait for a worker. The timeout begins anew whenever a waiting client gets one, so others may wait longer.
        Raises TimeoutError.
        """
        loop, limit_s = asyncio.get_running_loop(), self._limits.worker_start_timeout_s
        began = loop.time()
        while True:
            left_s = max(began, self._served_at) + limit_s - loop.time()
            done, _ = await asyncio.wait([future], timeout=left_s)
            if done:
                return future.result()
            if max(began, self._served_at) + limit_s <= loop.time():
                raise TimeoutError

    def _keep_spare(self, worker: Worker) -> None:
        """Keep a worker for the next client, unless enough are waiting: many are started while many clients connect."""
        if worker.environment:
            worker.terminate()  # few clients can use it
            return
        if worker.owner is not None:
            if len(self._workers_of(worker.owner)) > 1:
                worker.terminate()  # nobody but its owner may have it
                return
            worker.owner = None
        if len(self._spares) < self._limits.spare_workers or self._waiting:
            self._spares.append(worker)
        else:
            worker.terminate()

    def hand_over(
        self,
        worker: Worker,
        sock: socket.socket,
        assignment: dict[str, Any],
        *,
        desks: Sequence[HasFileno],
        region_fd: int | None = None,
        client_pidfd: int | None,
        on_attached: Callable[[], None],
        on_end: Callable[[Worker], None],
    ) -> None:
        """Give a client's socket to a worker that take() returned.

        Args:
            worker: the worker.
            sock: the client's socket; the caller closes it, in `on_attached` at the latest: then the worker has the
                only copy, and the client reads end of file when the worker dies.
            assignment: what the worker must know (see worker/control.py); under 128 KiB as msgpack.
            desks: the worker's ends of its sockets to vgpud, and other files that the assignment names; the caller's.
            region_fd: the region of which the assignment names a range, or None; stays the caller's.
            client_pidfd: watched, and closed, by vgpud: a worker that outlives its client for long is killed.
            on_attached: called once, before the worker answers the client, unless the worker ends first.
            on_end: called once, when the worker has been reaped.

        Raises:
            WorkerGoneError: the worker is gone; the pidfd is still the caller's.
        """
        sock.setblocking(True)  # the flag is the file description's, which the executor shares
        try:
            fds = [each.fileno() for each in (sock, *desks)] + ([] if region_fd is None else [region_fd])
            worker.assign(fds, assignment)
        except OSError as error:
            sock.setblocking(False)
            worker.kill()
            raise WorkerGoneError(f"the worker did not take the session: {error}") from error
        worker.on_attached, worker.on_end = on_attached, on_end
        worker.watch_client(client_pidfd, self._limits.worker_exit_timeout_s, self._count_kill)
        worker.expect("attached", self._limits.worker_start_timeout_s, self._count_kill)

    def adopt(
        self,
        process: Process,
        fields: dict[str, Any],
        incoming: Incoming,
        session: int,
        tenant: object,
        on_end: Callable[[Worker], None],
    ) -> Worker:
        """Adopt a worker of the previous vgpud, with its session; `fields`: Worker.dump()'s; `tenant`: as in take()."""
        pidfd = None if fields["client_pidfd"] is None else incoming.take(fields["client_pidfd"])
        worker = adopt_worker(process, fields, incoming, session, self._exited)
        worker.owner = self._owner(tenant)
        self._workers.add(worker)
        self._idle.clear()
        worker.on_end = on_end
        exit_s = self._limits.worker_exit_timeout_s
        worker.watch_client(pidfd, exit_s, self._count_kill)
        if fields["client_is_gone"]:
            worker.client_is_gone(exit_s, self._count_kill)
        if not fields["is_attached"]:
            worker.expect("attached", self._limits.worker_start_timeout_s, self._count_kill)
        return worker

    async def stop(self) -> None:
        """SIGTERM to every worker; SIGKILL to those left after `worker_exit_timeout_s`; return when all are reaped."""
        self._stopping = True
        if self._refill is not None:
            self._refill.cancel()
        self._spares.clear()
        self._warm.close()
        self._starting.clear()
        if self._look is not None:
            self._look.cancel()
        for worker in list(self._workers):
            worker.terminate()
        try:
            async with asyncio.timeout(self._limits.worker_exit_timeout_s):
                await self._idle.wait()
        except TimeoutError:
            for worker in list(self._workers):
                if worker.pid:  # else it has not been forked yet
                    self._log.warning("worker ignored SIGTERM", worker=worker.pid)
                worker.kill()
                self._count_kill()
            await self._idle.wait()
        self._spawner.close()

    def _end_stopped(self) -> None:
        """A worker that a signal has stopped answers no request: its client gets an error instead of
        waiting without end."""
        for worker in list(self._workers):
            if worker.session is not None:
                worker.end_if_stopped(self._count_kill)
        self._look = asyncio.get_running_loop().call_later(_LOOK_S, self._end_stopped)

    def _count_kill(self) -> None:
        self._metrics.workers_killed += 1

    def _fill(self) -> None:
        """Start as many workers as spares and waiting clients lack."""
        if self._refill is not None or self._stopping:
            return
        for owner, environment in self._lacking():
            if self._starting_count(None) >= _STARTING_CAP:
                break
            if not self._spawn(None, owner, environment):
                return
        for order in self._warm.lacking(self._limits.warm_workers, self._starting_count):
            if len(self._starting) >= _STARTING_CAP or not self._spawn(order):
                return

    def _lacking(self) -> list[tuple[object, Environment]]:
        """The owners and environments of workers to start: those of waiting clients, and none for each missing
        spare.
        """
        starting = Counter((each.owner, each.environment) for each in self._starting if each.warm_device is None)
        lacking: list[tuple[object, Environment]] = []
        for waiting in self._waiting:
            wanted = waiting.owner, waiting.environment
            if starting[wanted]:
                starting[wanted] -= 1
            else:
                lacking.append(wanted)
        spares = self._limits.spare_workers - len(self._spares) - starting[None, ()]
        return lacking + [(None, ())] * max(0, spares)

    def _starting_count(self, device: int | None) -> int:
        return sum(worker.warm_device == device for worker in self._starting)

    def _spawn(self, warm_order: dict[str, Any] | None, owner: object = None, environment: Environment = ()) -> bool:
        """Start a worker; False on failure, when a retry is scheduled."""
        uid = next((worker.uid for worker in self._workers_of(owner)), None)
        try:
            worker = spawn_worker(
                self._spawner,
                cache_environment(self._limits) | dict(environment),
                on_ready=self._ready,
                on_exit=self._exited,
                warm_order=warm_order,
                uid=uid,
            )
        except OSError as error:
            self._start_failed(str(error))
            return False
        worker.expect("ready", self._limits.worker_start_timeout_s, self._count_kill)
        worker.owner, worker.environment = owner, environment
        self._workers.add(worker)
        self._starting.add(worker)
        self._idle.clear()
        self._metrics.workers_started += 1
        return True

    def _start_failed(self, why: str) -> None:
        """Retry with growing delays, so that a broken installation does not loop; in the end fail the waiting
        clients.
        """
        self._failure = why
        self._log.warning("a worker did not start", why=why)
        if self._refill is not None:
            return  # workers started together fail together, as when their launcher dies: count one failure
        self._failures_in_row += 1
        if self._failures_in_row >= _FAILURES_BEFORE_REFUSAL:
            self._fail_waiting(f"workers do not start: {why}")
        if not self._stopping:
            delay_s = min(_BACKOFF_LAST_S, _BACKOFF_FIRST_S * 2 ** min(self._failures_in_row - 1, 10))
            self._refill = asyncio.get_running_loop().call_later(delay_s, self._try_again)

    def _fail_waiting(self, why: str) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.future.done():
                each.future.set_exception(WorkerStartError(why))

    def _try_again(self) -> None:
        self._refill = None
        self._fill()

    def _ready(self, worker: Worker) -> None:
        if worker not in self._starting:
            return  # it reported twice, or was ended meanwhile
        self._starting.discard(worker)
        self._failures_in_row = 0
        if worker.warm_device is not None:
            self._warm.add(worker, self._limits.warm_workers)
            self._fill()
            return
        self._waiting = [each for each in self._waiting if not each.future.done()]
        for waiting in self._waiting:
            if worker.environment == waiting.environment and self._may_have(waiting.owner, worker):
                self._waiting.remove(waiting)
                self._served_at = asyncio.get_running_loop().time()
                worker.owner = waiting.owner
                waiting.future.set_result(worker)
                break
        else:
            self._keep_spare(worker)
        self._fill()

    def _exited(self, worker: Worker) -> None:
        self._workers.discard(worker)
        if not self._workers:
            self._idle.set()
        self._metrics.workers_ended += 1
        failed = worker.failed and not self._stopping
        self._metrics.workers_failed += failed
        log = self._log.warning if failed else self._log.info
        log("worker ended", session=worker.session, worker=worker.pid, how=worker.how_it_ended, reason=worker.reason)
        if worker.warm_device is not None and self._end_warm(worker):
            pass
        elif worker in self._starting:
            self._starting.discard(worker)
            self._start_failed(worker.last_line or worker.how_it_ended)
        elif worker in self._spares:
            self._spares.remove(worker)
            self._fill()
        if worker.on_end is not None:
            worker.on_end(worker)

    def _end_warm(self, worker: Worker) -> bool:
        """Handle the end of a warm worker. False: the worker already had a client."""
        if worker in self._starting:
            self._starting.discard(worker)
        elif not self._warm.remove(worker):
            return False
        if not self._stopping:
            self._warm.failed(worker)
        self._fill()
        return True
