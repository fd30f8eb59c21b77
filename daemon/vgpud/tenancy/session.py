"""Sessions: one per welcomed client, from hello to the end of its worker."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from vgpud.log import Logger
from vgpud.proto import ClientInfo

from .peer import Peer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from vgpud.config_tables import LimitsConfig, ShareConfig
    from vgpud.devices.selection import Selection
    from vgpud.supervision.worker_process import Worker


# The last 1/_RESERVED of the sessions is reserved for clients that hold fewer than 1/_FEW of all, so that four clients
# within their own limits do not shut out all others.
_RESERVED, _FEW = 4, 16


@dataclass(slots=True, eq=False)
class Session:
    """One client. Kept small: an idle one costs vgpud a few kilobytes."""

    number: int
    epoch: int
    peer: Peer
    client: ClientInfo
    token_name: str | None
    log: Logger
    share: str | None = None  # the [[shares]] it has
    devices: Selection | None = None  # those of the host that it sees, see devices/selection.py
    memory_limit_nbytes: int | None = None  # of each device, for all of its tenant's sessions
    quotas: dict[str, int] = field(default_factory=dict)  # the share's, as its worker counts them
    denied: tuple[str, ...] = ()  # groups of functions that its programs may not call
    opened_at: float = field(default_factory=time.monotonic)
    heard_at: float = field(default_factory=time.monotonic)  # when the client's last message came, until it attaches
    end: Callable[[], object] = lambda: None  # closes the connection, while vgpud has it
    attaching: bool = False  # a worker is being found
    worker: Worker | None = None  # once attached
    pci: tuple[str, ...] = ()  # the guest's addresses of the first devices (pci_address.py)

    @property
    def tenant_name(self) -> str:
        """The name of the session's tenant: clients of one tenant share its limits."""
        return tenant_name(self.peer, self.token_name)

    @property
    def tenant(self) -> str:
        """The tenant as the name of a folder: clients of one tenant may share compiled code, others never."""
        return quote(self.tenant_name, safe="")

    def dump(self) -> dict[str, Any]:
        """For SessionTable.restore(), in the vgpud that follows."""
        kept = (
            "number",
            "epoch",
            "token_name",
            "share",
            "devices",
            "memory_limit_nbytes",
            "quotas",
            "denied",
            "opened_at",
            "heard_at",
            "pci",
        )
        fields = {name: getattr(self, name) for name in kept}
        return fields | {"peer": asdict(self.peer), "client": asdict(self.client)}

    def summary(self) -> dict[str, Any]:
        """What `vgpu status` shows."""
        return {
            "session": self.number,
            "peer": self.peer.key,
            "pid": self.peer.pid,
            "comm": self.client.comm,
            "token": self.token_name,
            "tenant": self.tenant_name,
            "share": self.share,
            "devices": None if self.devices is None else list(self.devices),
            "denied": list(self.denied),
            "worker_pid": None if self.worker is None else self.worker.pid,
            "age_s": round(time.monotonic() - self.opened_at, 3),
        }


def tenant_name(peer: Peer, token_name: str | None) -> str:
    """The tenant of a client: its token's, or else the kernel's identification of the peer."""
    return peer.key if token_name is None else f"token:{token_name}"


class SessionLimitError(Exception):
    """No further session is allowed now; the text is for the client."""


class SessionTable:
    """The open sessions, and the limits on them."""

    def __init__(self, first_epoch: int | None = None) -> None:
        self._sessions: dict[int, Session] = {}
        self._by_peer: Counter[str] = Counter()
        self._by_tenant: Counter[str] = Counter()
        self.watchers: set[asyncio.Queue[object]] = set()  # receive events, until a queue is full
        self._numbers = itertools.count(1)
        # A random start makes handles from before a restart of vgpud look stale, not valid.
        self._epoch = secrets.randbelow(65535) if first_epoch is None else first_epoch - 1
        self._closed = asyncio.Event()  # set when a session is closed
        self.changed = asyncio.Event()  # one has been opened, attached or closed

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    @property
    def working(self) -> int:
        """How many sessions have a worker, or get one now."""
        return sum(session.worker is not None or session.attaching for session in self._sessions.values())

    async def wait_none_working(self) -> None:
        """Return when `working` is 0."""
        while self.working:
            self._closed.clear()
            await self._closed.wait()

    def open(
        self,
        peer: Peer,
        client: ClientInfo,
        token_name: str | None,
        limits: LimitsConfig,
        log: Logger,
        share: ShareConfig | None = None,
    ) -> Session:
        """Register a new session. Raises SessionLimitError."""
        if len(self._sessions) >= limits.max_sessions:
            raise SessionLimitError(f"all {limits.max_sessions} sessions are in use")
        held = self._by_peer[peer.key]
        if held >= limits.sessions_per_client:
            raise SessionLimitError(f"all {limits.sessions_per_client} sessions of {peer.key} are in use")
        few = limits.max_sessions // _FEW
        if held >= few > 0 and len(self._sessions) >= limits.max_sessions - limits.max_sessions // _RESERVED:
            raise SessionLimitError(f"the last sessions are for clients with fewer than {few}; {peer.key} has {held}")
        tenant = tenant_name(peer, token_name)
        if share is not None and share.sessions is not None and self._by_tenant[tenant] >= share.sessions:
            raise SessionLimitError(f"all {share.sessions} sessions of {tenant} are in use (share {share.name})")
        self._epoch = self._epoch % 65535 + 1
        number = next(self._numbers)
        session = Session(number, self._epoch, peer, client, token_name, log.bind(session=number))
        if share is not None:
            session.share, session.memory_limit_nbytes = share.name, share.memory_nbytes
            session.quotas, session.denied = share.quotas, tuple(share.deny)
        self._add(session)
        self.tell("opened", session)
        return session

    def _add(self, session: Session) -> None:
        self._sessions[session.number] = session
        self._by_peer[session.peer.key] += 1
        self._by_tenant[session.tenant_name] += 1

    def restore(self, fields: dict[str, Any], log: Logger) -> Session:
        """Add a session of the previous vgpud, which has already checked the limits."""
        peer, client = Peer(**fields["peer"]), ClientInfo(**fields["client"])
        number = fields["number"]
        log = log.bind(peer=peer.key, pid=peer.pid, session=number)
        session = Session(number, fields["epoch"], peer, client, fields["token_name"], log)
        for name in ("share", "memory_limit_nbytes", "quotas", "opened_at", "heard_at"):
            setattr(session, name, fields[name])
        session.pci = tuple(fields["pci"])
        session.devices = None if fields["devices"] is None else tuple(fields["devices"])
        session.denied = tuple(fields["denied"])
        self._add(session)
        return session

    @property
    def counters(self) -> tuple[int, int]:
        """The next session's number, and the last epoch; set_counters() takes them in the vgpud that follows."""
        number = next(self._numbers)
        self._numbers = itertools.count(number)
        return number, self._epoch

    def set_counters(self, number: int, epoch: int) -> None:
        """Continue the previous vgpud's numbers of sessions."""
        self._numbers, self._epoch = itertools.count(number), epoch

    def tell(self, event: str, session: Session) -> None:
        """Send an event of a session to all watchers."""
        self.changed.set()
        for queue in list(self.watchers):
            if queue.full():
                self.watchers.discard(queue)
            else:
                queue.put_nowait({"event": event, "session": session.summary()})

    def longest_idle(self, newcomer: Peer) -> Session | None:
        """The session to end in favour of `newcomer`'s: without a worker, and of the client that holds most sessions.

        None: no client with such a session holds more than `newcomer`.
        """
        idle = [session for session in self._sessions.values() if session.worker is None and not session.attaching]
        held = max((self._by_peer[session.peer.key] for session in idle), default=0)
        if held <= self._by_peer[newcomer.key]:
            return None
        return min(
            (session for session in idle if self._by_peer[session.peer.key] == held), key=lambda each: each.heard_at
        )

    def close(self, session: Session) -> bool:
        """Forget a session. False: it was closed before."""
        if self._sessions.pop(session.number, None) is None:
            return False
        self._closed.set()
        self._by_peer[session.peer.key] -= 1
        if not self._by_peer[session.peer.key]:
            del self._by_peer[session.peer.key]
        self._by_tenant[session.tenant_name] -= 1
        if not self._by_tenant[session.tenant_name]:
            del self._by_tenant[session.tenant_name]
        self.tell("closed", session)
        return True
