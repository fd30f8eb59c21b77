"""Starts worker processes by a launcher (worker/launcher.py), which forks one for each order. Launchers are forked by a
loader, which has loaded the code: one that has died is replaced at once.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from typing import TYPE_CHECKING, Any

from vgpud.log import get_logger
from vgpud.worker.user_ids import UserIds

from .launcher import Launcher
from .loader import Loader
from .spawner import ignore

if TYPE_CHECKING:
    from collections.abc import Callable

    from vgpud.serving.succession import Incoming, Outgoing

    from .spawner import Process

_BACKOFF_FIRST_S, _BACKOFF_LAST_S = 0.25, 30.0  # before a loader that ended while it loaded is started again


class LauncherSpawner:
    """Orders workers from a launcher, which is started at the first order, and again when it has died or hangs."""

    def __init__(
        self,
        command: list[str],
        environment: dict[str, str],
        on_missing: Callable[[], None] = ignore,
        user_namespace_fd: int | None = None,
        ids: range | None = None,
    ) -> None:
        """`on_missing`: called when `missing` is known, if it is not empty. `user_namespace_fd`: for the launcher to
        enter; stays the caller's. `ids`: the user ids of workers."""
        self.missing: tuple[str, ...] = ()
        self.own_ids: bool | None = None
        self._ids = None if ids is None else UserIds(ids)
        self._given = [] if user_namespace_fd is None else [user_namespace_fd]
        self._command = [*command, *(word for fd in self._given for word in ("--user-namespace-fd", str(fd)))]
        self._environment = environment
        self._on_missing = on_missing
        self._loader: Loader | None = None
        self._reload: asyncio.TimerHandle | None = None
        self._backoff_s = _BACKOFF_FIRST_S
        self._launcher: Launcher | None = None
        self._retired: list[Launcher] = []  # launchers of previous vgpuds, and one that has died

    @property
    def pid(self) -> int:
        """The launcher's process id; 0: none runs, or it is still being forked."""
        return 0 if self._launcher is None else self._launcher.pid

    def spawn(
        self, control_fd: int, stderr_fd: int, environment: dict[str, str], *, warm: bool, uid: int | None = None
    ) -> Process:
        """See Spawner."""
        if self._launcher is not None:
            try:
                return self._launcher.order(control_fd, stderr_fd, environment, warm=warm, uid=uid)
            except ConnectionError:
                # The launcher has died. Its last messages are still to be read, but a new launcher is needed now.
                self._retired.append(self._launcher)
        self._launcher = self._launch()
        return self._launcher.order(control_fd, stderr_fd, environment, warm=warm, uid=uid)

    def _launch(self) -> Launcher:
        """A new launcher. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                try:
                    self._load().launch(theirs.fileno())
                except ConnectionError:  # the loader has died, which has not been noticed yet
                    self._end_loader()
                    self._load().launch(theirs.fileno())
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        gone: list[Launcher] = []
        forget = functools.partial(self._forget, gone)
        launcher = Launcher(ours, self._take_hello, forget, self._end_loader, self._ids)
        gone.append(launcher)
        return launcher

    def _load(self) -> Loader:
        """The loader, started if there is none. Raises OSError."""
        if self._loader is None:
            if self._reload is not None:
                self._reload.cancel()
                self._reload = None
            self._loader = Loader(self._command, self._environment, self._given, self._lost_loader)
        return self._loader

    def _end_loader(self) -> None:
        """It hangs, or it has died."""
        if self._loader is not None:
            self._loader.end()
            self._lost_loader()

    def _lost_loader(self) -> None:
        """Start the next one before it is needed; later, if this one did not get so far that it could be used."""
        assert self._loader is not None
        self._backoff_s = _BACKOFF_FIRST_S if self._loader.has_loaded else min(_BACKOFF_LAST_S, 2 * self._backoff_s)
        delay_s = 0 if self._loader.has_loaded else self._backoff_s
        self._loader = None
        self._reload = asyncio.get_running_loop().call_later(delay_s, self._load_again)

    def _load_again(self) -> None:
        self._reload = None
        try:
            self._load()
        except OSError as error:  # the next order tries it again
            get_logger().warning("the loader of workers' code does not start", why=str(error))

    def dump(self, outgoing: Outgoing) -> list[dict[str, Any]]:
        """See Spawner."""
        holders = [*self._retired, *([] if self._launcher is None else [self._launcher])]
        dumped = [launcher.dump(outgoing) for launcher in holders]
        if self._loader is not None:
            dumped.append(self._loader.dump(outgoing))
        return [fields for fields in dumped if fields is not None]

    def adopt(self, dumped: list[dict[str, Any]], incoming: Incoming) -> dict[str, Process]:
        """See Spawner."""
        found: dict[str, Process] = {}
        for fields in dumped:
            gone: list[Launcher] = []
            launcher, processes = Launcher.adopt(fields, incoming, functools.partial(self._forget, gone), self._ids)
            gone.append(launcher)
            self._retired.append(launcher)
            found |= processes
            if not processes:
                launcher.stop()  # the loader: the next program may have other code
        return found

    def close(self) -> None:
        """See Spawner."""
        for launcher in [*self._retired, *([] if self._launcher is None else [self._launcher])]:
            launcher.stop()
        if self._loader is not None:
            self._loader.end()
            self._loader = None
        if self._reload is not None:
            self._reload.cancel()

    def _take_hello(self, missing: list[str], own_ids: bool) -> None:
        self.missing, self.own_ids = tuple(missing), own_ids
        if self.missing:
            self._on_missing()

    def _forget(self, gone: list[Launcher]) -> None:
        self._retired = [each for each in self._retired if each not in gone]
        if self._launcher in gone:
            self._launcher = None
