"""Workers that have made a context on a device before any client needs it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from vgpud.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .worker_process import Worker

_RETRY_S = 30.0  # after a context could not be made: its device is full, perhaps


class WarmWorkers:
    """Those that wait for a client, by device. Clients are served without them where there are none."""

    def __init__(self, orders: list[dict[str, Any]], on_retry: Callable[[], None]) -> None:
        """`orders`: for each device, what a worker must know to make a context on it (worker/control.py). `on_retry`:
        called when lacking() is to be asked again after failed()."""
        self._orders = orders
        self._waiting: dict[int, list[Worker]] = {order["device"]: [] for order in orders}
        self._on_retry = on_retry
        self._retry: asyncio.TimerHandle | None = None

    @property
    def pids(self) -> dict[int, list[int]]:
        """The waiting processes by device."""
        return {device: [worker.pid for worker in waiting] for device, waiting in self._waiting.items() if waiting}

    def pop(self, device: int) -> Worker | None:
        """The one that has waited longest for a client of this device."""
        waiting = self._waiting.get(device)
        return waiting.pop(0) if waiting else None

    def limit(self, count: int) -> None:
        """End those beyond `count` for each device."""
        for waiting in self._waiting.values():
            while len(waiting) > count:
                waiting.pop().terminate()

    def lacking(self, count: int, starting: Callable[[int], int]) -> Iterator[dict[str, Any]]:
        """The order of each worker to start so that `count` wait for each device, and `starting` says how many are on
        their way; each is asked for after the one before has been started. Nothing for a while after failed()."""
        for order in self._orders if self._retry is None else ():
            while len(self._waiting[order["device"]]) + starting(order["device"]) < count:
                yield order

    def add(self, worker: Worker, count: int) -> None:
        """It is ready: keep it, unless `count` wait already, fewer than when it was started."""
        waiting = self._of(worker)
        if len(waiting) < count:
            waiting.append(worker)
        else:
            worker.terminate()

    def remove(self, worker: Worker) -> bool:
        """It has ended. False: it did not wait."""
        waiting = self._of(worker)
        if worker not in waiting:
            return False
        waiting.remove(worker)
        return True

    def failed(self, worker: Worker) -> None:
        """It ended before it had a client: start the next one later."""
        get_logger().warning("no warm worker", device=worker.warm_device, why=worker.last_line or worker.how_it_ended)
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(_RETRY_S, self._try_again)

    def close(self) -> None:
        """Forget them; start none."""
        if self._retry is not None:
            self._retry.cancel()
        for waiting in self._waiting.values():
            waiting.clear()

    def _of(self, worker: Worker) -> list[Worker]:
        assert worker.warm_device is not None
        return self._waiting[worker.warm_device]

    def _try_again(self) -> None:
        self._retry = None
        self._on_retry()
