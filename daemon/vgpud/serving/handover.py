"""Handing over: an attaching client's socket goes to a worker, with what its session may use there."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpud.devices.ledger import Ledger
from vgpud.devices.pci_address import relocate
from vgpud.proto.message import RECORD_NBYTES
from vgpud.services.ipc_service import IpcDesk
from vgpud.supervision.supervisor import WorkerStartError
from vgpud.tenancy.cache_folder import CacheFolders
from vgpud.tenancy.meter import Meters
from vgpud.tenancy.peer import open_peer_pidfd
from vgpud.tenancy.tenant import Identified
from vgpud.vm.region import Range

if TYPE_CHECKING:
    from collections.abc import Callable

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
    ) -> None:
        self._inventory = inventory
        self._supervisor = supervisor
        self._images = images
        self._ipc = ipc
        self._placement = placement
        self._folders = folders
        self._ledger = Ledger()
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
            sock: the client's; closed here when the worker has it.
            session: the client's.
            config: as it is now; the session keeps it.
            features: those that the client was welcomed with.
            device: the one it will use first; -1: it did not say.
            owner: the tenant that its desks act for, or None for no desks; stays the caller's.
            region: shall lend the session a part, if one is left; None: no part is wanted.
            on_end: called once, when the worker has been reaped.

        Returns:
            The worker, and the part that was lent.

        Raises:
            WorkerStartError: no worker could take it; the socket is still the caller's.
        """
        kept = ExitStack()  # what vgpud holds for the session: released when its worker has ended
        worker: Worker | None = None
        pidfd: int | None = None
        try:
            folder, leave = self._folders.enter(owner, session.tenant_name)
            kept.callback(leave)
            assignment = self._assignment(session, features, config, folder)
            desks = self._open_desks(owner, features, kept)
            lent: list[HasFileno] = [desk.theirs for desk in desks.values()]
            assignment["desks"] = list(desks)
            lent.append(self.meters.begin(session.number, session.tenant_name))
            kept.callback(self.meters.end, session.number)
            assignment["desks"].append("meter")
            if (row := self._ledger.take(session.tenant_name)) is not None:
                kept.callback(self._ledger.give_back, row)
                lent.append(self._ledger)
                assignment["desks"].append("ledger")
                assignment["ledger_row"] = row
                if session.memory_limit_nbytes is not None:
                    assignment["memory_limit_nbytes"] = session.memory_limit_nbytes
            elif session.memory_limit_nbytes is not None:
                raise WorkerStartError("no session with a limit of memory can be counted now: there are too many")
            pidfd = open_peer_pidfd(sock, session.peer)
            worker = await self._supervisor.take(device)
            group = self._placement.place(worker.pid, session, config)
            kept.callback(self._placement.leave, worker.pid, group)
            part = None if region is None else await region.take()
            if region is not None and part is not None:
                kept.callback(region.give_back, part)
                assignment["region"] = [part.offset, part.nbytes]

            held = _Held(worker, owner, folder, desks, assignment.get("ledger_row"), group, part)

            def ended(_worker: Worker) -> None:
                kept.close()
                on_end()

            self._supervisor.hand_over(
                worker,
                sock,
                assignment,
                desks=lent,
                region_fd=None if region is None or part is None else region.fd,
                client_pidfd=pidfd,
                on_end=ended,
            )
            for desk in desks.values():
                desk.theirs.close()
            self._hold(session, held, kept)
        except BaseException:
            if worker is not None:
                worker.terminate()  # it is nobody's
            if pidfd is not None:
                os.close(pidfd)
            kept.close()
            raise
        return worker, part

    def _hold(self, session: Session, held: _Held, kept: ExitStack) -> None:
        if held.owner is not None:
            held.owner = held.owner.copy()
            kept.callback(held.owner.close)
        self._held[session.number] = held
        kept.callback(self._held.pop, session.number)

    def dump(self, outgoing: Outgoing) -> dict[str, Any]:
        """Every session that a worker serves, for restore() in the vgpud that follows."""
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
        return {"ledger": ledger, "sessions": sessions, "meters": self.meters.dump()}

    def restore_sums(self, served: dict[str, Any], incoming: Incoming) -> None:
        """Go on with what the vgpud before has counted, and its ledger."""
        self.meters.restore(served["meters"])
        owners = {int(row): tenant for row, tenant in served["ledger"]["owners"].items()}
        self._ledger = Ledger(incoming.take(served["ledger"]["fd"]), owners)

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
        """A session of the vgpud before, which dump() described, and its worker."""
        kept = ExitStack()
        owner = None if fields["owner"] is None else Identified.restore(fields["owner"], incoming)
        folder, leave = self._folders.enter(owner, session.tenant_name, Path(fields["folder"]))
        kept.callback(leave)
        desks: dict[str, Desk] = {}
        for name, fd in fields["desks"].items():
            sock = socket.socket(fileno=incoming.take(fd))
            if owner is not None and name == "ipc":
                desks[name] = ipc = self._ipc.open(owner.copy(), sock)
                self._ipc.restore(ipc, fields["shared"], incoming)
            elif owner is not None and name == "images":
                desks[name] = self._images.open(owner.copy(), sock)
            else:
                sock.close()
        for desk in desks.values():
            kept.callback(desk.close)
        self.meters.begin(session.number, session.tenant_name, incoming.take(fields["meter"]))
        kept.callback(self.meters.end, session.number)
        row, group = fields["ledger_row"], None if fields["group"] is None else Path(fields["group"])
        if row is not None:
            kept.callback(self._ledger.give_back, row)
        part = None if fields["part"] is None else Range(*fields["part"])
        if region is not None and part is not None and region.adopt(part):
            kept.callback(region.give_back, part)

        def ended(_worker: Worker) -> None:
            kept.close()
            on_end()

        worker = self._supervisor.adopt(process, fields["worker"], incoming, session.number, ended)
        self._placement.adopt(worker.pid, group, session, config)
        kept.callback(self._placement.leave, worker.pid, group)
        self._hold(session, _Held(worker, owner, folder, desks, row, group, part), kept)
        if owner is not None:
            owner.close()  # _hold has a copy
        return worker

    def set_absent(self, mask: int) -> None:
        """Tell all workers which devices are out of service."""
        self._ledger.set_absent(mask)

    def _assignment(self, session: Session, features: tuple[str, ...], config: Config, folder: Path) -> dict[str, Any]:
        """The worker's assignment, without the resources of its session; see worker/control.py."""
        inventory = self._inventory
        return {
            "session": session.number,
            "epoch": session.epoch,
            "backend": inventory.fields["backend"],
            "gpus": inventory.gpus,
            "host_seed": inventory.host_seed,
            "devices": [{"index": i, "name": d["name"]} for i, d in enumerate(inventory.fields["devices"])],
            "inventory": relocate(inventory.fields, session.pci),
            "libcuda": config.libcuda,
            "cache_dir": str(folder),
            "limits": {
                "record_nbytes": RECORD_NBYTES,
                "spin_us": config.limits.spin_here_us,
                "kernel_cache_nbytes": config.limits.kernel_cache_nbytes,
                "host_nbytes": config.limits.host_memory_nbytes,
                "tools": config.sanitizer_tools,
                "counts": int(config.profile),
            },
            "features": list(features),
            "peer": session.peer.fields(),
        }

    def _open_desks(self, owner: Identified | None, features: tuple[str, ...], kept: ExitStack) -> dict[str, Desk]:
        """What the session's worker may ask of us, until `kept` is closed."""
        desks: dict[str, Desk] = {}
        if owner is not None and self._ipc.is_on:
            desks["ipc"] = self._ipc.open(owner.copy())
            kept.callback(desks["ipc"].close)
        if owner is not None and "images" in features:
            desks["images"] = self._images.open(owner.copy())
            kept.callback(desks["images"].close)
        return desks
