"""The running daemon: sockets, server and supervisor put together; readiness, reload and drain."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpud import __version__
from vgpud.admin.api import AdminApi
from vgpud.admin.server import AdminServer
from vgpud.audit import Audit
from vgpud.config import Config, ConfigError, check_gpus, load_config
from vgpud.devices.watch import DeviceWatch
from vgpud.endpoint import UnixEndpoint, VsockEndpoint
from vgpud.log import configure_log, get_logger
from vgpud.metrics import Metrics
from vgpud.services.image_service import ImageService
from vgpud.services.ipc_service import IpcService
from vgpud.supervision.placement import Placement
from vgpud.supervision.supervisor import Supervisor
from vgpud.tenancy.cache_folder import CacheFolders
from vgpud.tenancy.state_file import StateError, StateFile
from vgpud.tls.door import TlsDoor
from vgpud.vm.region import Region
from vgpud.vm.supervision import VmDevice
from vgpud.worker import landlock

from .activation import matching, take_sockets
from .fd_store import FdStore
from .handover import Handover
from .listener import Listener, adopt_listener, open_listener
from .notify import Notifier
from .server import Server
from .succession import SIGNALS, Outgoing, asking
from .worker_source import WorkerSource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from vgpud.config_tables import VmConfig
    from vgpud.devices.inventory import Inventory
    from vgpud.endpoint import Endpoint

    from .succession import Incoming

_VHOST_VSOCK = Path("/dev/vhost-vsock")  # the kernel's own vsock device for virtual machines
CHECK_TIMEOUT_S = 40.0  # for the installed program's `--check`, on a busy machine
# The state that outlives a crash is collected at this interval when no session begins or ends, and after this pause
# when one has; the pause is at least this many times as long as collecting takes of a processor.
_KEEP_S, _KEEP_PAUSE_S, _KEEP_PART = 2.0, 0.05, 20
_STOP_MARGIN_S = 10.0  # to close what is left, on a busy machine
_RELOADABLE = {"limits", "tokens", "shares", "users", "default_share", "images", "recording", "log"}


class Service:
    """One vgpud. `config_path` is read again on SIGHUP."""

    def __init__(
        self,
        config: Config,
        inventory: Inventory,
        *,
        config_path: Path | None = None,
        incoming: Incoming | None = None,
    ) -> None:
        """`incoming`: what the previous vgpud in this process left. Raises StateError."""
        self.config = config
        self.generation = 1 if incoming is None else incoming.document["generation"] + 1  # of vgpuds in this process
        self._incoming = incoming
        self.metrics = Metrics()
        if incoming is not None:
            self.metrics.restore(incoming.document["metrics"])
        self._config_path = config_path
        self._notifier = Notifier()
        self._store = FdStore(self._notifier)
        if incoming is not None and incoming.document.get("store") is not None:
            self._store.restore(incoming.document["store"])
        self._log = get_logger()
        self._inventory = inventory
        self._worker_source = WorkerSource(config, inventory.gpus, self._isolation_is_missing, incoming)
        self._spawner = self._worker_source.spawner
        self._placement = Placement()
        self._folders = CacheFolders(config.cache_path)
        self.supervisor = Supervisor(
            self._spawner,
            config.limits,
            self.metrics,
            shares_ids=config.backend == "cuda",
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
        self.audit = Audit()
        self._open_audit()
        handover = Handover(
            inventory, self.supervisor, self.images, self.ipc, self._placement, self._folders, self.audit
        )
        self.server = Server(config, inventory, handover, self.images, self.ipc, self.metrics)
        self._watch = DeviceWatch(self._device_gone, self._device_came, self._device_failed)
        self.listeners: list[Listener] = []
        self.vm_devices: list[VmDevice] = []
        self._admin: AdminServer | None = None
        self._tls: TlsDoor | None = None
        self._state = StateFile(config.state_path)
        self._restore(self._state.load())
        self._drains_until: float | None = None
        self._restart_wanted = asyncio.Event()
        self._inherited: dict[str, Any] = {} if incoming is None else incoming.document["listeners"]

    def _open_audit(self) -> None:
        """Raises StateError at a first start; a vgpud that has sessions goes on, and says in its log what is wrong."""
        path = self.config.log.audit_path
        try:
            self.audit.open(path)
        except OSError as error:
            if self._incoming is None:
                raise StateError(f"{path}: the audit log cannot be opened: {error.strerror}") from error
            self._log.error("the audit log cannot be opened", path=str(path), error=error.strerror)

    def _restore(self, document: dict[str, Any]) -> None:
        if not document:
            return
        try:
            self.server.tokens.restore(document["tokens"])
            self.server.quarantined.update(document["quarantined"])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"the state of the vgpud before is damaged: {error!r}") from error

    def save(self) -> None:
        """Keep issued tokens and the quarantine for the next vgpud. Raises OSError."""
        self._state.save({"tokens": self.server.tokens.dump(), "quarantined": sorted(self.server.quarantined)})

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
                if (sock := matching(passed, endpoint)) is not None:
                    listener = adopt_listener(sock, endpoint)
                else:
                    listener = self._listen(endpoint)
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
                    self.server.regions[vm.name] = await self._open_region(vm)
                if vm.hybrid_endpoint is not None:
                    self.listeners.append(self._listen(vm.hybrid_endpoint, mode=0o660, group=vm.group))
            if self.config.tls is not None:
                listener = self._listen(self.config.tls.endpoint)
                self._tls = TlsDoor(self.config.tls, listener, self.server.admit)
            if self.config.admin is not None:
                listener = self._listen(UnixEndpoint(self.config.admin), mode=0o600)
                self._admin = AdminServer(listener, AdminApi(self, self._inventory).answer)
                await self._admin.start()
        except BaseException:
            self._close_listeners()
            raise
        if self._spawner.missing:
            self._isolation_is_missing()
        self._placement.start(self.config)
        if self._incoming is not None:
            processes = self._spawner.adopt(self._incoming.document["launchers"], self._incoming)
            self.server.restore(self._incoming.document["server"], processes, self._incoming)
            for url, fields in self._inherited.items():
                Listener.restore(fields, url, self._incoming).close()  # the configuration has this endpoint no longer
            self._inherited.clear()
            if self._incoming.is_after_crash:
                working = self.server.sessions.working
                self._log.warning("a vgpud before this one crashed: its sessions go on", sessions=working)
            self._incoming.close()
            self._incoming = None
        self._placement.end_others()
        await asyncio.to_thread(self._folders.remove_left)
        self.supervisor.start()
        if self.config.backend == "cuda":
            self._watch.start()
        self.images.start()
        self.server.start(self.listeners)
        for listener in self.listeners:
            listener.unmark_restart()  # the previous vgpud made the mark
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

    def _device_gone(self, address: str, why: str) -> None:
        if (device := self.server.presence.at(address)) is not None:
            self.server.presence.withdraw(device, why)

    def _device_came(self, address: str) -> None:
        """Workers' drivers still have the device's old state, so only the administrator's order puts it back into
        service.
        """
        if (device := self.server.presence.at(address)) is not None:
            self._log.info("a device is there again: vgpu device restore", device=device, address=address)

    def _device_failed(self, address: str, xid: int) -> None:
        if (device := self.server.presence.at(address)) is not None:
            self._log.warning("the driver reports an error of a device", device=device, xid=xid)
            self.metrics.xids[device] = xid

    def _listen(self, endpoint: Endpoint, *, mode: int | None = None, group: str | None = None) -> Listener:
        """The listener of the previous vgpud, or a new one."""
        if self._incoming is not None and (fields := self._inherited.pop(str(endpoint), None)) is not None:
            listener = Listener.restore(fields, str(endpoint), self._incoming)
            if listener.is_reachable:
                return listener
            listener.close()
        if mode is None:
            mode, group = self.config.socket.mode_bits, self.config.socket.group
        return open_listener(endpoint, mode=mode, group=group)

    async def _open_region(self, vm: VmConfig) -> Region:
        kept = None if self._incoming is None else self._incoming.document["regions"].pop(vm.name, None)
        if self._incoming is not None and kept is not None:
            fd = self._incoming.take(kept["fd"])
            if os.fstat(fd).st_size == vm.ivshmem_mib << 20:
                return Region(fd, vm.ivshmem_mib << 20, vm.ivshmem_ranges, cookie=bytes.fromhex(kept["cookie"]))
            os.close(fd)
        return await asyncio.to_thread(Region.open, vm)

    def _dump(self, outgoing: Outgoing) -> dict[str, Any]:
        """Everything that continues in the next vgpud."""
        listeners = [*self.listeners]
        listeners += [door.listener for door in (self._tls, self._admin) if door is not None]
        regions = self.server.regions.items()
        return {
            "generation": self.generation,
            "metrics": self.metrics.dump(),
            "listeners": {str(each.endpoint): each.dump(outgoing) for each in listeners},
            "regions": {name: {"fd": outgoing.add(each.fd), "cookie": each.cookie.hex()} for name, each in regions},
            "launchers": self._spawner.dump(outgoing),
            "user_namespace": self._worker_source.dump_namespace(outgoing),
            "server": self.server.dump(outgoing),
        }

    async def check_restart(self) -> str | None:
        """Whether the installed program accepts this configuration and can take over what runs: None, or why not."""
        check = await asyncio.create_subprocess_exec(
            *(sys.executable, *sys.orig_argv[1:], "--check"),
            env=asking(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                _out, errors = await check.communicate()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                check.kill()
            await check.wait()
            return f"`vgpud --check` did not end within {CHECK_TIMEOUT_S:.0f} s"
        return None if check.returncode == 0 else errors.decode(errors="replace").strip()[:1024]

    def request_restart(self) -> None:
        """Request that the program is replaced in place and all sessions continue: see _restart()."""
        self._restart_wanted.set()

    async def _restart(self) -> bool:
        """Execute the installed program in this process, unnoticed by workers and clients. True: it refuses the
        configuration, and nothing has changed. False: it cannot be executed, and no new client is served any more.
        """
        if (why := await self.check_restart()) is not None:
            self._log.error("not restarted, as the installed vgpud refuses", why=why)
            return True
        self._log.info("restarting in place", sessions=self.server.sessions.working, generation=self.generation)
        self._notifier.reloading()
        for listener in self.listeners:
            listener.mark_restart()
        await self.server.freeze()
        if self._admin is not None:
            await self._admin.close()
        if self._tls is not None:
            await self._tls.stop()
        for device in self.vm_devices:
            device.stop()  # a device process stays while a VM uses it
        outgoing = Outgoing()
        try:
            outgoing.execute(self._dump(outgoing) | {"store": self._store.dump()})
        except OSError as error:
            self._log.error("not restarted, and draining: the program cannot be executed", error=str(error))
        for listener in self.listeners:
            listener.unmark_restart()
        return False

    async def drain(self, at_once: asyncio.Event) -> None:
        """Refuse new sessions. Return when all sessions with a worker have ended, after `limits.drain_timeout_s`, or
        when `at_once` is set."""
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
        self._store.clear()
        self._log.info("stopping", sessions_ended=self.server.sessions.working)
        for device in self.vm_devices:
            device.stop()
        if self._tls is not None:
            await self._tls.stop()
        await self.server.close()
        self._watch.close()
        if self._admin is not None:
            await self._admin.close()
        await self.supervisor.stop()
        for region in self.server.regions.values():
            await region.close()
        await self.images.close()
        self.ipc.close()
        self._close_listeners()

    async def run(self, until: Callable[[], Awaitable[None]] | None = None) -> None:
        """Call start(), serve until SIGTERM, SIGINT or the end of `until`, then call stop().

        The first signal begins drain(), a second one ends it; the end of `until` causes no drain.
        """
        loop = asyncio.get_running_loop()
        ordered, again = asyncio.Event(), asyncio.Event()

        def order() -> None:
            (again if ordered.is_set() else ordered).set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, order)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        loop.add_signal_handler(signal.SIGUSR2, self._restart_wanted.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # the previous vgpud in this process has blocked them
        raise_file_limit()
        await self.start()
        tasks = [asyncio.create_task(ordered.wait())]
        if until is not None:
            tasks.append(asyncio.ensure_future(until()))  # type: ignore[arg-type]
        tasks.append(asyncio.create_task(self._restart_wanted.wait()))
        watchdog = asyncio.create_task(self._feed_watchdog())
        keeping = asyncio.create_task(self._keep())
        try:
            while True:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if not self._restart_wanted.is_set() or ordered.is_set():
                    break
                if not await self._restart():
                    ordered.set()
                    break
                self._restart_wanted.clear()
                tasks[-1] = asyncio.create_task(self._restart_wanted.wait())
            if ordered.is_set():
                await self.drain(again)
        finally:
            for task in (*tasks, keeping):
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
            if new.backend == self.config.backend == "cuda":
                check_gpus(new, self._inventory.fields, self._config_path)
        except ConfigError as error:
            self.audit.warning("reload refused, the old configuration stays", error=str(error))
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
        try:
            self.audit.open(self.config.log.audit_path)  # the same path again: logrotate may have renamed the file
        except OSError as error:
            self._log.error(
                "the audit log cannot be opened, the one before stays",
                path=self.config.log.audit,
                error=error.strerror,
            )
        self.audit.info("reloaded", changed=sorted(changed & _RELOADABLE))

    def status(self) -> dict[str, Any]:
        """The document of the administrator's interface (admin/api.py)."""
        until = self._drains_until
        return {
            "drain_left_s": None if until is None else round(max(0.0, until - asyncio.get_running_loop().time()), 1),
            "version": __version__,
            "generation": self.generation,
            "listen": [str(listener.endpoint) for listener in self.listeners],
            "backend": self.config.backend,
            "devices": [str(device["name"]) for device in self._inventory.fields["devices"]],
            "out_of_service": {str(i): why for i, why in enumerate(self.server.presence.states) if why},
            "workers": self.supervisor.worker_count,
            "isolation_missing": [*self._spawner.missing, *self._placement.missing],
            "landlock_missing": list(landlock.scopes()[1]),
            "spare_workers": self.supervisor.spare_pids,
            "warm_workers": self.supervisor.warm_pids,
            "sessions_stored": self._store.sessions,
            "vms": [device.summary() for device in self.vm_devices],
            "metrics": self.metrics.snapshot(),
            "sessions": [session.summary() for session in self.server.sessions],
        }

    async def _keep(self) -> None:
        """Store with the manager what the next vgpud needs to continue after a crash of this one."""
        if not self._store.is_on:
            return
        while True:
            begun = time.thread_time()
            self._store.save(self._dump)
            took_s = time.thread_time() - begun
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KEEP_S):
                    await self.server.sessions.changed.wait()
            self.server.sessions.changed.clear()
            await asyncio.sleep(max(_KEEP_PAUSE_S, _KEEP_PART * took_s))

    async def _feed_watchdog(self) -> None:
        """Ping the watchdog from the event loop itself, so that a hanging loop stops the pings."""
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
