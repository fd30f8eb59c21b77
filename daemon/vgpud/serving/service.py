"""The running daemon: sockets, server and supervisor put together; readiness, reload and drain."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpud.admin.api import AdminApi
from vgpud.admin.server import AdminServer
from vgpud.config import Config, ConfigError, load_config
from vgpud.endpoint import UnixEndpoint, VsockEndpoint
from vgpud.log import configure_log, get_logger
from vgpud.metrics import Metrics
from vgpud.services.image_service import ImageService
from vgpud.services.ipc_service import IpcService
from vgpud.supervision.child_environment import child_environment
from vgpud.supervision.placement import Placement
from vgpud.supervision.spawner import CommandSpawner, LauncherSpawner, Spawner
from vgpud.supervision.supervisor import Supervisor
from vgpud.tenancy.cache_folder import CacheFolders
from vgpud.tls.door import TlsDoor
from vgpud.vm.region import Region
from vgpud.vm.supervision import VmDevice

from .activation import matching, take_sockets
from .handover import Handover
from .listener import Listener, adopt_listener, open_listener
from .notify import Notifier
from .server import Server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from vgpud.devices.inventory import Inventory

_VHOST_VSOCK = Path("/dev/vhost-vsock")  # the kernel's own vsock device for virtual machines
_STOP_MARGIN_S = 10.0  # to close what is left, on a busy machine
_RELOADABLE = {"limits", "tokens", "shares", "users", "default_share", "images", "log"}


class Service:
    """One vgpud. `config_path` is read again on SIGHUP."""

    def __init__(self, config: Config, inventory: Inventory, *, config_path: Path | None = None) -> None:
        self.config = config
        self.metrics = Metrics()
        self._config_path = config_path
        self._notifier = Notifier()
        self._log = get_logger()
        self._spawner = self._make_spawner()
        self._placement = Placement()
        self._folders = CacheFolders(config.cache_path)
        self.supervisor = Supervisor(
            self._spawner,
            config.limits,
            self.metrics,
            warm_orders=[
                {
                    "device": device,
                    "backend": str(inventory.fields["backend"]),
                    "gpus": inventory.gpus,
                    "inventory": inventory.fields,
                    "libcuda": config.libcuda,
                }
                for device in range(inventory.device_count)
            ],
        )
        self.images = ImageService(config.images, self.metrics)
        self.ipc = IpcService(config.limits, self.metrics)
        handover = Handover(inventory, self.supervisor, self.images, self.ipc, self._placement, self._folders)
        self.server = Server(config, inventory, handover, self.images, self.ipc, self.metrics)
        self.listeners: list[Listener] = []
        self.vm_devices: list[VmDevice] = []
        self._admin: AdminServer | None = None
        self._tls: TlsDoor | None = None
        self._inventory = inventory
        self._drains_until: float | None = None

    def _make_spawner(self) -> Spawner:
        config = self.config
        if config.worker_command:
            return CommandSpawner(config.worker_command, child_environment())
        # `-P` keeps the working directory off the module path: a worker runs our code, wherever vgpud was started.
        launcher = [sys.executable, "-P", "-m", "vgpud.worker.launcher"]
        options = ["--backend", config.backend, "--libcuda", config.libcuda]
        return LauncherSpawner([*launcher, *options], child_environment(), self._isolation_is_missing)

    def _isolation_is_missing(self) -> None:
        missing = list(self._spawner.missing)
        if self.config.require_isolation:
            self._log.error(
                "no client is served: require_isolation is set, and workers are not isolated", missing=missing
            )
            self.supervisor.refuse(f"this host cannot isolate workers: {', '.join(missing)}")
        else:
            self._log.info("workers are isolated less than they could be", missing=missing)

    async def start(self) -> None:
        """Bind and serve. Raises ListenError, EndpointError or RegionError; then nothing is left open."""
        try:
            passed = take_sockets()
            for endpoint in self.config.endpoints:
                socket_config = self.config.socket
                if (sock := matching(passed, endpoint)) is not None:
                    listener = adopt_listener(sock, endpoint)
                else:
                    listener = open_listener(endpoint, mode=socket_config.mode_bits, group=socket_config.group)
                self.listeners.append(listener)
                if isinstance(endpoint, VsockEndpoint) and not _VHOST_VSOCK.exists():
                    self._log.warning(
                        "no VM of this host can connect there: modprobe vhost_vsock", listen=str(endpoint)
                    )
            for sock in passed:
                self._log.warning(
                    "a socket of systemd's is not in `listen`: nobody serves it", socket=sock.getsockname()
                )
                sock.close()
            for vm in self.config.vm:
                if vm.ivshmem is not None:
                    self.server.regions[vm.name] = await asyncio.to_thread(Region.open, vm)
                if vm.hybrid_endpoint is not None:
                    self.listeners.append(open_listener(vm.hybrid_endpoint, mode=0o660, group=vm.group))
            if self.config.tls is not None:
                listener = open_listener(self.config.tls.endpoint)
                self._tls = TlsDoor(self.config.tls, listener, self.server.admit)
            if self.config.admin is not None:
                listener = open_listener(UnixEndpoint(self.config.admin), mode=0o600)
                self._admin = AdminServer(listener, AdminApi(self, self._inventory).answer)
                await self._admin.start()
        except BaseException:
            self._close_listeners()
            raise
        if self._spawner.missing:
            self._isolation_is_missing()
        self._placement.start(self.config)
        await asyncio.to_thread(self._folders.remove_left)
        self.supervisor.start()
        self.images.start()
        self.server.start(self.listeners)
        self.vm_devices = [VmDevice(vm, self.server.admit) for vm in self.config.vm if vm.vsock is not None]
        for device in self.vm_devices:
            device.start()
        if self._tls is not None:
            self._tls.start()
            await self._tls.wait_ready()
        await asyncio.gather(*(device.wait_there() for device in self.vm_devices))
        names = [str(device["name"]) for device in self._inventory.fields["devices"]]
        where = [str(listener.endpoint) for listener in self.listeners]
        if self._tls is not None:
            where.append(f"{self._tls.listener.endpoint} (TLS)")
        self._log.info("ready", listen=where, backend=self.config.backend, devices=names)
        self._notifier.ready(f"{len(names)} devices, listening on {', '.join(where)}")

    async def drain(self, at_once: asyncio.Event) -> None:
        """Refuse new sessions, and return when those that have a worker are over, when they have had
        `limits.drain_timeout_s`, or when `at_once` is set."""
        timeout_s = self.config.limits.drain_timeout_s
        self._notifier.stopping(timeout_s + self.config.limits.worker_exit_timeout_s + _STOP_MARGIN_S)
        sessions = self.server.sessions
        self._log.info("draining: a second signal ends it", sessions=sessions.working, timeout_s=timeout_s)
        self.server.refuse_sessions("vgpud is stopping: a new session can begin when it runs again")
        tasks = [asyncio.create_task(sessions.wait_none_working()), asyncio.create_task(at_once.wait())]
        self._drains_until = asyncio.get_running_loop().time() + timeout_s
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

    async def stop(self) -> None:
        """End every session and worker, and remove the sockets."""
        self._notifier.stopping(self.config.limits.worker_exit_timeout_s + _STOP_MARGIN_S)
        self._log.info("stopping", sessions_ended=self.server.sessions.working)
        for device in self.vm_devices:
            device.stop()
        if self._tls is not None:
            await self._tls.stop()
        await self.server.close()
        if self._admin is not None:
            await self._admin.close()
        await self.supervisor.stop()
        for region in self.server.regions.values():
            await region.close()
        await self.images.close()
        self.ipc.close()
        self._close_listeners()

    async def run(self, until: Callable[[], Awaitable[None]] | None = None) -> None:
        """start(), serve until SIGTERM, SIGINT or `until` is over, stop().

        The first signal begins drain(), a second one ends it; `until` asks for no drain.
        """
        loop = asyncio.get_running_loop()
        ordered, again = asyncio.Event(), asyncio.Event()

        def order() -> None:
            (again if ordered.is_set() else ordered).set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, order)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        raise_file_limit()
        await self.start()
        tasks = [asyncio.create_task(ordered.wait())]
        if until is not None:
            tasks.append(asyncio.ensure_future(until()))  # type: ignore[arg-type]
        watchdog = asyncio.create_task(self._feed_watchdog())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if ordered.is_set():
                await self.drain(again)
        finally:
            for task in tasks:
                task.cancel()
            await self.stop()
            watchdog.cancel()

    def reload(self) -> None:
        """Take limits, tokens and log settings from the file again; a broken file changes nothing."""
        if self._config_path is None:
            self._log.warning("nothing to reload: vgpud was started without --config")
            return
        try:
            new = load_config(self._config_path)
        except ConfigError as error:
            self._log.error("reload refused, the old configuration stays", error=str(error))
            return
        changed = {name for name in Config.model_fields if getattr(new, name) != getattr(self.config, name)}
        if fixed := sorted(changed - _RELOADABLE):
            self._log.warning("these settings need a restart", keys=fixed)
        self.config = self.config.model_copy(update={name: getattr(new, name) for name in _RELOADABLE})
        self.server.config = self.config
        self.server.tokens.set_configured(self.config.tokens)
        self.supervisor.set_limits(self.config.limits)
        self.ipc.set_limits(self.config.limits)
        self.images.set_config(self.config.images)
        if "log" in changed:
            configure_log(self.config.log.level, self.config.log.format)
        self._log.info("reloaded", changed=sorted(changed & _RELOADABLE))

    def status(self) -> dict[str, Any]:
        """The document of the administrator's interface (admin/api.py)."""
        until = self._drains_until
        return {
            "drain_left_s": None if until is None else round(max(0.0, until - asyncio.get_running_loop().time()), 1),
            "listen": [str(listener.endpoint) for listener in self.listeners],
            "backend": self.config.backend,
            "devices": [str(device["name"]) for device in self._inventory.fields["devices"]],
            "workers": self.supervisor.worker_count,
            "isolation_missing": [*self._spawner.missing, *self._placement.missing],
            "spare_workers": self.supervisor.spare_pids,
            "warm_workers": self.supervisor.warm_pids,
            "vms": [device.summary() for device in self.vm_devices],
            "metrics": self.metrics.snapshot(),
            "sessions": [session.summary() for session in self.server.sessions],
        }

    async def _feed_watchdog(self) -> None:
        """Sent from the event loop itself, so that a hanging loop stops it."""
        if self._notifier.watchdog_s is None:
            return
        while True:
            self._notifier.watchdog()
            await asyncio.sleep(self._notifier.watchdog_s / 2)

    def _close_listeners(self) -> None:
        for listener in self.listeners:
            listener.close()
        self.listeners.clear()
        if self._tls is not None:
            self._tls.listener.close()
            self._tls = None
        if self._admin is not None:
            self._admin.listener.close()
            self._admin = None


def raise_file_limit() -> None:
    """A session costs a few descriptors: use what the hard limit allows."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
