"""The entry for clients: accept, identify, answer discovery; admission.py decides, handover.py gives workers.

conversation.py reads and writes the frames."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from vgpud.cudaerror import CudaError
from vgpud.devices import selection
from vgpud.devices.inventory import without_ipc
from vgpud.devices.pci_address import relocate
from vgpud.devices.presence import Presence
from vgpud.log import get_logger
from vgpud.nvml.service import NvmlService
from vgpud.proto import (
    Attach,
    HostConnection,
    Nvml,
    Ping,
    Pong,
    Refused,
    RemoteProtocolError,
    Welcome,
)
from vgpud.proto.message import REGION
from vgpud.supervision.supervisor import WorkerStartError
from vgpud.tenancy.peer import Peer, identify
from vgpud.tenancy.promise import shortage
from vgpud.tenancy.session import Session
from vgpud.tenancy.share import within
from vgpud.tenancy.tenant import Identified, identify_tenant

from .admission import Admission, Refusal, common_version
from .conversation import Conversation, Frozen, Gone, Silence
from .pace import Pace
from .peer_log import PeerLog
from .pending import PendingConnections
from .succession import RESTORE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from vgpud.config import Config
    from vgpud.devices.inventory import Inventory
    from vgpud.metrics import Metrics
    from vgpud.services.image_service import ImageService
    from vgpud.services.ipc_service import IpcService
    from vgpud.supervision.spawner import Process
    from vgpud.tenancy.meter import Meters
    from vgpud.tenancy.turns import Turns
    from vgpud.vm.region import Region

    from .handover import Handover
    from .listener import Listener
    from .succession import Incoming, Outgoing

_FREEZE_S = 5.0
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# What a question costs the event loop (measured: 0.2 ms for a snapshot of NVML's answers), and how much of the loop one
# client's questions may take, at once and in the long run.
_QUESTION_S, _QUESTIONS_BURST_S, _QUESTIONS_SHARE = 0.0003, 0.1, 0.1


@dataclass(slots=True)
class _Welcomed:
    """A client that was welcomed, and has no worker yet."""

    session: Session
    features: tuple[str, ...]
    owner: Identified | None


def _tune_tcp(sock: socket.socket) -> None:
    """No delay for small records; a peer that vanished without a word is noticed after two minutes, here and later in
    the worker, which inherits the socket."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 120_000)


class Server:
    """Serves listeners until close(). `config` may be replaced while it runs; sessions keep what they were given."""

    def __init__(
        self,
        config: Config,
        inventory: Inventory,
        handover: Handover,
        images: ImageService,
        ipc: IpcService,
        metrics: Metrics,
    ) -> None:
        self._peer_log = PeerLog()
        self._admission = Admission(config, metrics, self._peer_log)
        self.sessions = self._admission.sessions
        self.tokens = self._admission.tokens
        self.quarantined = self._admission.quarantined
        self.regions: dict[str, Region] = {}  # by VM
        self.presence = Presence([str(each["pci"]) for each in inventory.fields["devices"]], self._presence_changed)
        self._inventory = inventory
        self._images = images
        self._ipc = ipc
        self._handover = handover
        self.nvml = NvmlService(inventory, tenant_memory=handover.tenant_memory)
        self._metrics = metrics
        self._log = get_logger()
        self._pending = PendingConnections()
        self._pace = Pace(_QUESTIONS_SHARE, _QUESTIONS_BURST_S)
        self._tasks: set[asyncio.Task[None]] = set()
        self._silence = Silence()
        self._frozen: list[tuple[socket.socket, Peer, _Welcomed | None]] = []
        self._accepting: list[asyncio.Task[None]] = []

    @property
    def config(self) -> Config:
        return self._admission.config

    @config.setter
    def config(self, config: Config) -> None:
        self._admission.config = config

    def _presence_changed(self, mask: int) -> None:
        """Refuse new users of an absent device first, then end the sessions that have used it."""
        self._handover.set_absent(mask)
        for session in self.sessions:
            if session.worker is not None and self.meters.devices(session.number) & mask:
                self._peer_log.warn(session.peer, "session ended: its device is out of service", session=session.number)
                self._admission.end(session)

    def quotas(self, session: Session) -> dict[str, dict[str, int | None]] | None:
        """What a session uses of each quota, and the limit of all its tenant's sessions together; None: the session has
        no worker, or nothing is counted."""
        used = self._handover.quotas(session.number)
        if used is None:
            return None
        limits = {"host_nbytes": self.config.limits.host_memory_nbytes} | session.quotas
        return {name: {"used": amount, "limit": limits.get(name)} for name, amount in used.items()}

    @property
    def turns(self) -> Turns:
        """How tenants share cards."""
        return self._handover.turns

    @property
    def meters(self) -> Meters:
        """Statistics of sessions' calls."""
        return self._handover.meters

    def end_session(self, session: Session) -> None:
        """End a session at once, whether vgpud or a worker has its connection."""
        self._admission.end(session)

    def start(self, listeners: list[Listener]) -> None:
        """Begin to accept."""
        self._accepting = [asyncio.create_task(self._accept(listener)) for listener in listeners]

    def refuse_sessions(self, why: str) -> None:
        """From now on refuse new sessions, and workers for sessions without one. Sessions with a worker continue."""
        self._admission.closed = why

    async def stop_accepting(self) -> None:
        """Leave new clients in the listeners' queues."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)

    async def close(self) -> None:
        """Stop accepting and drop every connection that no worker has."""
        await self.stop_accepting()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Replacement by another vgpud (succession.py)

    async def freeze(self) -> None:
        """Stop accepting, and stop serving clients without a worker, between two frames so that none is lost. A client
        that has begun a frame, or is being given a worker, has a few seconds; then its connection is closed.
        """
        await self.stop_accepting()
        self._silence.freeze()
        if self._tasks:
            _done, late = await asyncio.wait(list(self._tasks), timeout=_FREEZE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def dump(self, outgoing: Outgoing) -> dict[str, Any]:
        """All sessions, for restore(). After freeze()."""
        absent = dict(enumerate(self.presence.states))
        waiting = []
        for sock, peer, welcomed in self._frozen:
            fields: dict[str, Any] = {"sock": outgoing.add(sock.fileno()), "peer": asdict(peer), "session": None}
            if welcomed is not None:
                owner = None if welcomed.owner is None else welcomed.owner.dump(outgoing)
                fields |= {"session": welcomed.session.number, "features": welcomed.features, "owner": owner}
            waiting.append(fields)
        sessions = [session.dump() for session in self.sessions]
        served = self._handover.dump(outgoing)
        return {
            "counters": self.sessions.counters,
            "sessions": sessions,
            "served": served,
            "waiting": waiting,
            "absent": absent,
        }

    def restore(self, fields: dict[str, Any], processes: dict[str, Process], incoming: Incoming) -> None:
        """Take over what dump() described, and serve it."""
        self.sessions.set_counters(*fields["counters"])
        sessions = {each["number"]: self.sessions.restore(each, self._log) for each in fields["sessions"]}
        self._metrics.sessions_open = len(self.sessions)
        served = fields["served"]
        self._handover.restore_sums(served, incoming)
        for key, each in served["sessions"].items():
            session = sessions[int(key)]
            region = self.regions.get(session.peer.vm or "")
            try:
                process = processes[each["worker"]["process"]]
                session.worker = self._handover.restore(
                    session, each, process, incoming, self.config, region, partial(self._admission.close, session)
                )
            except RESTORE_ERRORS as error:
                session.log.error("the session ends: what the vgpud before left of it is damaged", error=repr(error))
                continue
            session.worker.set_lines_per_s(self.config.log.lines_per_session_s)
        for each in fields["waiting"]:
            sock = socket.socket(fileno=incoming.take(each["sock"]))
            sock.setblocking(False)
            welcomed = None
            if each["session"] is not None:
                owner = None if each["owner"] is None else Identified.restore(each["owner"], incoming)
                welcomed = _Welcomed(sessions.pop(each["session"]), tuple(each["features"]), owner)
            self.admit(sock, Peer(**each["peer"]), welcomed)
        for device, why in fields["absent"].items():
            if why and int(device) < len(self.presence.states):
                self.presence.withdraw(int(device), why)
        for session in sessions.values():
            if session.worker is None:
                self._admission.close(session)  # it ended while vgpud was replaced

    # Accepting

    async def _accept(self, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listener.sock)
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._log.warning("cannot accept", endpoint=str(listener.endpoint), error=str(error))
                    await asyncio.sleep(1.0)  # the queue stays readable: without a pause this would spin
                continue
            try:
                sock.setblocking(False)
                if listener.sock.family in (socket.AF_INET, socket.AF_INET6):
                    _tune_tcp(sock)
                peer = identify(sock, address, listener.endpoint, self.config.vm)
            except OSError:
                sock.close()
                continue
            self.admit(sock, peer)
            await asyncio.sleep(0)  # a flood of connections must not keep the loop from serving others

    def admit(self, sock: socket.socket, peer: Peer, welcomed: _Welcomed | None = None) -> None:
        """Serve a connected, non-blocking socket of an identified peer, unless too many connections are pending."""
        if self._silence.is_frozen:
            self._frozen.append((sock, peer, None))
            return
        if welcomed is not None:
            self._serve_task(self._serve(sock, peer, welcomed))
            return
        self._metrics.connections_accepted += 1
        if not self._pending.make_room(peer.key, self.config.limits):
            self._turn_away(sock, peer)
            return
        task = self._serve_task(self._serve(sock, peer))
        self._pending.add(peer.key, task)
        self._metrics.connections_pending = self._pending.count

    def _serve_task(self, serving: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(serving)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _waits_no_longer(self, peer: Peer, task: asyncio.Task[None]) -> None:
        self._pending.remove(peer.key, task)
        self._metrics.connections_pending = self._pending.count

    def _turn_away(self, sock: socket.socket, peer: Peer) -> None:
        """Refuse without waiting: the cap exists so that a flood costs as little as possible."""
        reason = "too many connections are waiting for admission"
        self._metrics.count_refusal(CudaError.SYSTEM_NOT_READY)
        self._peer_log.warn(peer, "refused", code=CudaError.SYSTEM_NOT_READY.name, reason=reason)
        with contextlib.suppress(OSError):
            sock.send(HostConnection().send(Refused(CudaError.SYSTEM_NOT_READY, reason)))
        sock.close()

    # One connection, until it is closed or handed over to a worker

    async def _serve(self, sock: socket.socket, peer: Peer, welcomed: _Welcomed | None = None) -> None:
        is_welcomed = welcomed is not None
        client = Conversation(sock, self._silence, lambda: self.config.limits, self._metrics, welcomed=is_welcomed)
        session: Session | None = None
        owner: Identified | None = None
        task = asyncio.current_task()
        assert task is not None
        try:
            if welcomed is None:
                hello = await client.hello()
                session = self._admission.open(hello, peer)
                session.end = task.cancel
                self._choose_devices(session)
                owner = identify_tenant(sock, peer, session.token_name)
                features = self._admission.features(
                    hello,
                    session,
                    has_region=peer.vm in self.regions,
                    has_images=owner is not None and self._images.is_on,
                )
                seen = selection.only(self._inventory.fields, session.devices)
                inventory = within(relocate(seen, session.pci), session.memory_limit_nbytes)
                if owner is None or not self._ipc.is_on:
                    inventory = without_ipc(inventory)
                region = self.regions[peer.vm or ""].fields if REGION in features else None
                welcome = Welcome(common_version(hello), features, session.epoch, inventory, region=region)
                await client.send(welcome)
                self._waits_no_longer(peer, task)
            else:
                session, features, owner = welcomed.session, welcomed.features, welcomed.owner
                session.end = task.cancel
            attach = await self._converse(client, session)
            await self._attach(sock, session, features, owner, attach)
            session = None  # the worker's now; closed after the worker is reaped
        except Frozen:
            welcomed = None if session is None else _Welcomed(session, features, owner)
            self._frozen.append((sock.dup(), peer, welcomed))
            session = owner = None
        except Refusal as refusal:
            await self._refuse(client, peer, refusal.code, refusal.reason)
        except RemoteProtocolError as error:
            if error.speaks_vgpu:
                await self._refuse(client, peer, CudaError.INVALID_VALUE, f"protocol error: {error}")
            else:
                self._drop(peer, str(error))
        except TimeoutError:
            self._drop(peer, "too late")
        except (Gone, OSError) as error:
            if isinstance(error, OSError) and error.errno in _EXHAUSTED:  # vgpud's shortage (AT18)
                reason = f"the host is short of something: {error.strerror}"
                await self._refuse(client, peer, CudaError.OPERATING_SYSTEM, reason)
            elif session is None:
                self._metrics.connections_dropped += 1
        except Exception:  # a bug in vgpud ends this connection, not the daemon
            self._log.exception("internal error", peer=peer.key)
        finally:
            self._waits_no_longer(peer, task)
            if session is not None:
                self._admission.close(session)
            if owner is not None:
                owner.close()
            sock.close()

    def _choose_devices(self, session: Session) -> None:
        """Give a session the devices of its share. Raises Refusal."""
        share = self.config.share(session.share)
        if share is None or share.gpus is None:
            session.devices = selection.whole(self._inventory.fields)
            return
        try:
            session.devices = selection.find(self._inventory.fields, share.gpus)
        except ValueError as error:  # `gpus` of the configuration has changed, too, and vgpud has not been restarted
            raise Refusal(CudaError.NO_DEVICE, f"share {share.name}: {error}") from error

    async def _converse(self, client: Conversation, session: Session) -> Attach:
        """Answer pings and NVML questions until the client attaches."""
        while True:
            message = await client.question(session)
            if isinstance(message, Attach):
                return message
            if isinstance(message, Nvml):
                self._metrics.nvml_questions += 1
                await client.send(await self.nvml.answer(message, session, self.sessions))
            else:
                assert isinstance(message, Ping)
                self._metrics.pings += 1
                await client.send(Pong())
            # Limits questions as well, over all sessions of one client (AT15).
            await asyncio.sleep(self._pace.delay_s(session.peer.key, _QUESTION_S))

    async def _attach(
        self, sock: socket.socket, session: Session, features: tuple[str, ...], owner: Identified | None, attach: Attach
    ) -> None:
        """Give the connection to a worker; `owner` stays the caller's."""
        self._admission.check_open()
        device = selection.number_on_host(attach.device, session.devices)
        if why := self.presence.why(device):
            raise Refusal(CudaError.DEVICE_UNAVAILABLE, f"device {attach.device} is out of service: {why}")
        if not self.config.limits.oversubscribe_memory:
            short = shortage(session, self.sessions, self._inventory.fields)
            if short is not None:
                raise Refusal(CudaError.SYSTEM_NOT_READY, short)
        session.attaching = True
        region = self.regions[session.peer.vm or ""] if attach.region and REGION in features else None
        try:
            worker, part = await self._handover.hand_over(
                sock,
                session,
                self.config,
                features=features,
                # A worker with a context has all devices.
                device=device if session.devices is None else -1,
                owner=owner,
                region=region,
                on_end=lambda: self._admission.close(session),
            )
        except WorkerStartError as error:
            raise Refusal(CudaError.OPERATING_SYSTEM, str(error)) from error
        session.worker = worker
        self.sessions.tell("attached", session)
        worker.set_lines_per_s(self.config.log.lines_per_session_s)
        self._metrics.sessions_attached += 1
        if region is not None:
            what = "none left" if part is None else f"{part.nbytes >> 20} MiB at {part.offset:#x}"
            self._peer_log.note(session, "session attached", worker=worker.pid, memory=what)
        else:
            self._peer_log.note(session, "session attached", worker=worker.pid)

    # Turning down

    async def _refuse(self, client: Conversation, peer: Peer, code: CudaError, reason: str) -> None:
        self._metrics.count_refusal(code)
        self._peer_log.warn(peer, "refused", code=code.name, reason=reason)
        await client.refuse(code, reason)

    def _drop(self, peer: Peer, why: str) -> None:
        self._metrics.connections_dropped += 1
        self._peer_log.warn(peer, "dropped", why=why)
