"""Hands an attaching client's socket over to a worker, with the resources that its session may use."""

from __future__ import annotations

import asyncio
import math
import os
import socket
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpud._gen.api import GROUPS
from vgpud.devices.ledger import Ledger
from vgpud.devices.mps import share_variables
from vgpud.devices.pci_address import relocate
from vgpud.devices.selection import only, visible_devices
from vgpud.proto.message import RECORD_NBYTES
from vgpud.services.ipc_service import IpcDesk
from vgpud.supervision.supervisor import WorkerGoneError, WorkerStartError
from vgpud.tenancy.cache_folder import CacheFolders, open_driver_folders, open_shared
from vgpud.tenancy.meter import Meters
from vgpud.tenancy.peer import open_peer_pidfd
from vgpud.tenancy.recordings import open_recording
from vgpud.tenancy.tenant import Identified, Tenant
from vgpud.tenancy.turns import Turns
from vgpud.vm.region import Range

if TYPE_CHECKING:
    from collections.abc import Callable

    from vgpud.audit import Audit
    from vgpud.config import Config
    from vgpud.devices.inventory import Inventory
    from vgpud.services.desk import Desk
    from vgpud.services.image_service import ImageService
    from vgpud.services.ipc_service import IpcService
    from vgpud.supervision.placement import Placement
    from vgpud.supervision.spawner import Process
    from vgpud.supervision.supervisor import HasFileno, Supervisor
    from vgpud.supervision.worker_process import Worker
    from vgpud.tenancy.session import Session
    from vgpud.vm.region import Region

    from .succession import Incoming, Outgoing


_GROUP_OF = {function: group for group, functions in GROUPS.items() for function in functions}
_TRIES = 3  # workers that a session is assigned to before it is given up


class _OpenFolder:
    """Owns a descriptor; close() closes it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


@dataclass(slots=True)
class _Held:
    """What vgpud holds for a session while a worker serves it."""

    worker: Worker
    owner: Identified | None
    folder: Path
    desks: dict[str, Desk]
    ledger_row: int | None
    group: Path | None
    part: Range | None


@dataclass(slots=True)
class _Request:
    """A session that no worker has answered yet."""

    client: socket.socket
    session: Session
    config: Config
    assignment: dict[str, Any]
    lent: list[HasFileno]
    device: int
    tenant: Tenant | None
    region: Region | None
    kept: ExitStack  # closed when the session has ended
    until_attached: ExitStack  # closed when a worker is about to answer the client
    on_end: Callable[[], None]
    held: _Held = field(init=False)  # set when a worker has the session
    tries_left: int = _TRIES
    retry: asyncio.Task[None] | None = None  # referenced here, or it might be collected


class Handover:
    """Hands vgpud's connections over to the supervisor's workers."""

    def __init__(
        self,
        inventory: Inventory,
        supervisor: Supervisor,
        images: ImageService,
        ipc: IpcService,
        placement: Placement,
        folders: CacheFolders,
        audit: Audit,
    ) -> None:
        self._inventory = inventory
        self._supervisor = supervisor
        self._images = images
        self._ipc = ipc
        self._placement = placement
        self._folders = folders
        self._audit = audit
        self._ledger = Ledger()
        self.turns = Turns()
        self.meters = Meters()
        self._held: dict[int, _Held] = {}  # by session

    async def hand_over(
        self,
        sock: socket.socket,
        session: Session,
        config: Config,
        *,
        features: tuple[str, ...],
        device: int,
        owner: Identified | None,
        region: Region | None,
        on_end: Callable[[], None],
    ) -> tuple[Worker, Range | None]:
        """Give a connection to a worker, preferably one with a context on its device.

        Args:
            sock: the client's socket; closed here when the worker has it.
            session: the client's.
            config: the current one; the session keeps using it.
            features: those that the client was welcomed with.
            device: the one that the client will use first; -1: unknown.
            owner: the tenant that the session's desks serve; None: no desks. Stays the caller's.
            region: the region to take a range from, if one is free; None: no range is requested.
            on_end: called once, when the worker has been reaped.

        Returns:
            The worker, and the session's range of the region, if any.

        Raises:
            WorkerStartError: no worker could take it; the socket is still the caller's.
        """
        kept = ExitStack()  # what vgpud holds for the session: released when its worker has ended
        until_attached = ExitStack()  # what another worker would need if the first one died at once
        try:
            kept.push(until_attached)
            client = sock.dup()
            until_attached.callback(client.close)
            folder, leave = self._folders.enter(owner, session.tenant_name)
            kept.callback(leave)
            assignment = self._assignment(session, features, config, folder)
            desks = self._open_desks(owner, features, kept)
            lent: list[HasFileno] = [desk.theirs for desk in desks.values()]
            for desk in desks.values():
                until_attached.callback(desk.theirs.close)
            assignment["desks"] = list(desks)
            lent.append(self.meters.begin(session.number, session.tenant_name))
            kept.callback(self.meters.end, session.number)
            kept.callback(self._sum_denied, session)
            assignment["desks"].append("meter")
            self._record(session, config, assignment, lent, until_attached)
            if (row := self._ledger.take(session.tenant_name)) is not None:
                kept.callback(self._ledger.give_back, row)
                lent.append(self._ledger)
                assignment["desks"].append("ledger")
                assignment["ledger_row"] = row
                self._let_take_turns(row, session, config, assignment, lent, kept)
                if session.memory_limit_nbytes is not None:
                    assignment["memory_limit_nbytes"] = session.memory_limit_nbytes
            elif session.memory_limit_nbytes is not None or session.quotas:
                raise WorkerStartError("no session with limits can be counted now: there are too many")
            part = None if region is None else await region.take()
            if region is not None and part is not None:
                kept.callback(region.give_back, part)
                assignment["region"] = [part.offset, part.nbytes]
            lender = None if part is None else region
            tenant = None if owner is None else owner.tenant
            request = _Request(
                client, session, config, assignment, lent, device, tenant, lender, kept, until_attached, on_end
            )
            worker, group = await self._assign(request)
            request.held = _Held(worker, owner, folder, desks, row, group, part)
            self._hold(session, request.held, kept)
        except BaseException:
            kept.close()
            raise
        sock.close()
        return worker, part

    def _record(
        self,
        session: Session,
        config: Config,
        assignment: dict[str, Any],
        lent: list[HasFileno],
        until_attached: ExitStack,
    ) -> None:
        """Have the worker record the session, if the operator has asked for that."""
        about = {name: assignment[name] for name in ("backend", "gpus", "features", "denied")}
        try:
            recording = open_recording(session, config, about)
        except OSError as error:
            session.log.warning("the session is not recorded", why=str(error))
            return
        if recording is not None:
            until_attached.callback(recording.close)
            lent.append(recording)
            assignment["desks"].append("recording")
            self._audit.info(
                "session recorded", tenant=session.tenant_name, session=session.number, path=str(recording.path)
            )

    def _let_take_turns(
        self,
        row: int,
        session: Session,
        config: Config,
        assignment: dict[str, Any],
        lent: list[HasFileno],
        kept: ExitStack,
    ) -> None:
        """Have a session's work on cards wait for its tenant's turns, if the configuration has weights."""
        if config.backend != "cuda" or not any(share.weight for share in config.shares):
            return
        tenant = self.turns.take(row, session.tenant_name, config.weight(session.share))
        if tenant is None:
            session.log.warning("the session does not wait for turns: there are too many tenants")
            return
        kept.callback(self.turns.give_back, row)
        lent.append(self.turns)
        assignment["desks"].append("turns")
        assignment["turns_tenant"] = tenant

    async def _assign(self, request: _Request) -> tuple[Worker, Path | None]:
        """Assign a session to a worker, and to another one if that has just died.

        Returns:
            The worker, and its control group.
        Raises:
            WorkerStartError: none could take it.
        """
        while True:
            request.tries_left -= 1
            share = request.config.share(request.session.share)
            environment = visible_devices(self._inventory.fields, request.session.devices)
            environment += share_variables(None if share is None else share.mps_active_thread_percentage)
            worker = await self._supervisor.take(request.device, request.tenant, environment)
            try:
                return worker, self._assign_to(worker, request)
            except WorkerGoneError:
                if request.tries_left == 0:
                    raise

    def _assign_to(self, worker: Worker, request: _Request) -> Path | None:
        """Returns the worker's control group. Raises WorkerGoneError or OSError after ending the worker."""
        session, lent = request.session, [*request.lent]
        assignment = request.assignment | {"desks": [*request.assignment["desks"]]}
        with ExitStack() as sent, ExitStack() as failed:
            failed.callback(worker.terminate)
            worker.on_denied = partial(self._denied, session)
            if self._supervisor.workers_have_own_ids:
                with suppress(OSError):  # without a cache the session is slower
                    cache = _OpenFolder(open_shared(Path(assignment["cache_dir"])))
                    sent.callback(cache.close)
                    lent.append(cache)
                    assignment["desks"].append("cache")
                    if assignment["backend"] == "cuda":
                        open_driver_folders(cache.fileno())
            group = self._placement.place(worker.pid, session, request.config)
            failed.callback(self._placement.leave, worker.pid, group)
            if (pidfd := open_peer_pidfd(request.client, session.peer)) is not None:
                failed.callback(os.close, pidfd)
            self._supervisor.hand_over(
                worker,
                request.client,
                assignment,
                desks=lent,
                region_fd=None if request.region is None else request.region.fd,
                client_pidfd=pidfd,
                on_attached=request.until_attached.close,
                on_end=lambda worker: self._ended(worker, group, request),
            )
            failed.pop_all()
        return group

    def _ended(self, worker: Worker, group: Path | None, request: _Request) -> None:
        """A worker has been reaped. One that died by itself before it answered its client is replaced: vgpud
        has read everything that the client has sent."""
        self._placement.leave(worker.pid, group)
        if worker.is_attached or worker.was_ended or request.tries_left == 0:
            request.kept.close()
            request.on_end()
            return
        self._held.pop(request.session.number, None)
        request.session.log.warning("the worker ended before it met its client: another one is asked")
        request.retry = asyncio.get_running_loop().create_task(self._reassign(request))

    async def _reassign(self, request: _Request) -> None:
        session = request.session
        try:
            worker, group = await self._assign(request)
        except (WorkerStartError, OSError) as error:
            session.log.warning("no other worker could take the session", why=str(error))
            request.kept.close()
            request.on_end()
            return
        session.worker = worker
        request.held.worker, request.held.group = worker, group
        self._held[session.number] = request.held

    def _hold(self, session: Session, held: _Held, kept: ExitStack) -> None:
        if held.owner is not None:
            held.owner = held.owner.copy()
            kept.callback(held.owner.close)
        self._held[session.number] = held
        kept.callback(self._held.pop, session.number, None)

    def _denied(self, session: Session, function: str, count: int) -> None:
        """A worker reports the 1st, 10th, 100th (and so on) denied call of a function. A worker acts for a client."""
        group = _GROUP_OF.get(function)
        if group in session.denied:
            self._audit.denial(
                "call denied",
                session.tenant_name,
                session=session.number,
                peer=session.peer.key,
                pid=session.peer.pid,
                comm=session.client.comm,
                share=session.share,
                group=group,
                function=function,
                count=count,
            )

    def _sum_denied(self, session: Session) -> None:
        """Record how many calls of each group an ending session was denied."""
        counts = {group: n for group, n in self.meters.denied(session.number).items() if group in session.denied}
        if counts:
            self._audit.denial(
                "calls denied in a session that has ended",
                session.tenant_name,
                session=session.number,
                share=session.share,
                **counts,
            )

    def dump(self, outgoing: Outgoing) -> dict[str, Any]:
        """Every session that a worker serves, for restore() in the next vgpud."""
        ledger = {"fd": outgoing.add(self._ledger.fileno()), "owners": self._ledger.owners}
        sessions = {}
        for number, held in self._held.items():
            ipc = held.desks.get("ipc")
            sessions[number] = {
                "worker": held.worker.dump(outgoing),
                "owner": None if held.owner is None else held.owner.dump(outgoing),
                "folder": str(held.folder),
                "desks": {name: outgoing.add(desk.fileno()) for name, desk in held.desks.items() if desk.is_open},
                "shared": self._ipc.dump(ipc, outgoing) if isinstance(ipc, IpcDesk) else [],
                "ledger_row": held.ledger_row,
                "meter": outgoing.add(self.meters.fileno(number)),
                "group": None if held.group is None else str(held.group),
                "part": None if held.part is None else [held.part.offset, held.part.nbytes],
            }
        turns = self.turns.dump() | {"fd": outgoing.add(self.turns.fileno())}
        return {"ledger": ledger, "turns": turns, "sessions": sessions, "meters": self.meters.dump()}

    def restore_sums(self, served: dict[str, Any], incoming: Incoming) -> None:
        """Continue with the counters and the ledger of the previous vgpud."""
        self.meters.restore(served["meters"])
        owners = {int(row): tenant for row, tenant in served["ledger"]["owners"].items()}
        self._ledger = Ledger(incoming.take(served["ledger"]["fd"]), owners)
        self.turns = Turns.restore(incoming.take(served["turns"]["fd"]), served["turns"])

    def restore(
        self,
        session: Session,
        fields: dict[str, Any],
        process: Process,
        incoming: Incoming,
        config: Config,
        region: Region | None,
        on_end: Callable[[], None],
    ) -> Worker:
        """Adopt a session of the previous vgpud, which dump() described, and its worker. Raises RESTORE_ERRORS, if
        fields or descriptors are missing: then nothing is held for it.
        """
        owner = None if fields["owner"] is None else Identified.restore(fields["owner"], incoming)
        with ExitStack() as undo:  # what is done if the session cannot be restored
            kept = undo.enter_context(ExitStack())
            if owner is not None:
                undo.callback(owner.close)
            folder, leave = self._folders.enter(owner, session.tenant_name, Path(fields["folder"]))
            kept.callback(leave)
            desks: dict[str, Desk] = {}
            for name, fd in fields["desks"].items():
                sock = socket.socket(fileno=incoming.take(fd))
                if owner is not None and name == "ipc":
                    desks[name] = ipc = self._ipc.open(owner.copy(), sock)
                    kept.callback(ipc.close)
                    self._ipc.restore(ipc, fields["shared"], incoming)
                elif owner is not None and name == "images":
                    desks[name] = self._images.open(owner.copy(), sock)
                    kept.callback(desks[name].close)
                else:
                    sock.close()
            self.meters.begin(session.number, session.tenant_name, incoming.take(fields["meter"]))
            kept.callback(self.meters.end, session.number)
            kept.callback(self._sum_denied, session)
            row, group = fields["ledger_row"], None if fields["group"] is None else Path(fields["group"])
            if row is not None:
                kept.callback(self._ledger.give_back, row)
                if row in self.turns.rows:
                    kept.callback(self.turns.give_back, row)
            part = None if fields["part"] is None else Range(*fields["part"])
            if region is not None and part is not None and region.adopt(part):
                kept.callback(region.give_back, part)

            def ended(_worker: Worker) -> None:
                kept.close()
                on_end()

            tenant = None if owner is None else owner.tenant
            worker = self._supervisor.adopt(process, fields["worker"], incoming, session.number, tenant, ended)
            worker.on_denied = partial(self._denied, session)
            self._placement.adopt(worker.pid, group, session, config)
            kept.callback(self._placement.leave, worker.pid, group)
            self._hold(session, _Held(worker, owner, folder, desks, row, group, part), kept)
            undo.pop_all()
        if owner is not None:
            owner.close()  # _hold has a copy
        return worker

    def quotas(self, session: int) -> dict[str, int] | None:
        """What a session uses of each quota; None: nothing is counted."""
        held = self._held.get(session)
        return None if held is None or held.ledger_row is None else self._ledger.quotas(held.ledger_row)

    def tenant_memory(self, tenant: str, device: int) -> int:
        """Bytes of a host's device that all sessions of a tenant use."""
        return self._ledger.used_by_tenant(device, tenant)

    def set_absent(self, mask: int) -> None:
        """Tell all workers which devices are out of service."""
        self._ledger.set_absent(mask)

    def _assignment(self, session: Session, features: tuple[str, ...], config: Config, folder: Path) -> dict[str, Any]:
        """The worker's assignment, without the resources of its session; see worker/control.py."""
        inventory = self._inventory
        seen = range(inventory.device_count) if session.devices is None else session.devices
        names = [str(device["name"]) for device in inventory.fields["devices"]]
        return {
            "session": session.number,
            "epoch": session.epoch,
            "backend": inventory.fields["backend"],
            "gpus": inventory.gpus,
            "host_seed": inventory.host_seed,
            "devices": [{"index": number, "name": names[number]} for number in seen],
            "inventory": relocate(only(inventory.fields, session.devices), session.pci),
            "libcuda": config.libcuda,
            "cache_dir": str(folder),
            "limits": {
                "record_nbytes": RECORD_NBYTES,
                "spin_us": config.limits.spin_here_us,
                "kernel_cache_nbytes": config.limits.kernel_cache_nbytes,
                "kernel_compile_ms": round(config.limits.kernel_compile_s * 1000),
                "kernel_run_ms": math.ceil(config.limits.kernel_run_s * 1000),
                "host_nbytes": session.quotas.get("host_nbytes", config.limits.host_memory_nbytes),
                "tools": config.sanitizer_tools,
                "counts": int(config.profile),
                "recording_nbytes": config.recording.session_mib << 20,
            },
            "share": session.share,
            "quotas": session.quotas,
            "denied": list(session.denied),
            "features": list(features),
            "peer": session.peer.fields(),
        }

    def _open_desks(self, owner: Identified | None, features: tuple[str, ...], kept: ExitStack) -> dict[str, Desk]:
        """Open the sockets on which the session's worker asks vgpud questions, until `kept` is closed."""
        desks: dict[str, Desk] = {}
        if owner is not None and self._ipc.is_on:
            desks["ipc"] = self._ipc.open(owner.copy())
            kept.callback(desks["ipc"].close)
        if owner is not None and "images" in features:
            desks["images"] = self._images.open(owner.copy())
            kept.callback(desks["images"].close)
        return desks
