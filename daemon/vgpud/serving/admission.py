"""Whether a client gets a session, and what that session may use: version, token, share, limits, features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vgpud._gen.api import OBJECT_QUOTAS
from vgpud.cudaerror import CudaError
from vgpud.proto.message import (
    ACTIVITY,
    FEATURES_OF_SHARED_MEMORY,
    QUOTAS,
    REGION,
    VERSION_HIGHEST,
    VERSION_LOWEST,
)
from vgpud.tenancy.session import SessionLimitError, SessionTable, tenant_name
from vgpud.tenancy.share import share_of
from vgpud.tenancy.token import TokenStore

if TYPE_CHECKING:
    from vgpud.config import Config
    from vgpud.metrics import Metrics
    from vgpud.proto import Hello
    from vgpud.tenancy.peer import Peer
    from vgpud.tenancy.session import Session

    from .peer_log import PeerLog


@dataclass(frozen=True, slots=True)
class Refusal(Exception):
    """The client gets this answer, and its connection is closed."""

    code: CudaError
    reason: str


def common_version(hello: Hello) -> int:
    """The protocol version that both sides speak. Raises Refusal."""
    version = min(hello.highest, VERSION_HIGHEST)
    if version < max(hello.lowest, VERSION_LOWEST):
        offered, own = f"{hello.lowest}..{hello.highest}", f"{VERSION_LOWEST}..{VERSION_HIGHEST}"
        raise Refusal(
            CudaError.SYSTEM_DRIVER_MISMATCH, f"no protocol version in common: the client speaks {offered}, vgpud {own}"
        )
    return version


class Admission:
    """Opens and closes sessions. `config` may be replaced at any time; sessions keep what they were given."""

    def __init__(self, config: Config, metrics: Metrics, log: PeerLog) -> None:
        self.config = config
        self.sessions = SessionTable(config.recording.epoch)
        self.tokens = TokenStore(config.tokens)
        self.quarantined: set[str] = set()  # tenants, by name
        self.closed = ""  # why no session begins now; "": they do
        self._metrics = metrics
        self._log = log

    def check_open(self) -> None:
        """Raises Refusal while no session may begin and none may get a worker."""
        if self.closed:
            raise Refusal(CudaError.SYSTEM_NOT_READY, self.closed)

    def open(self, hello: Hello, peer: Peer) -> Session:
        """A session for the client. Raises Refusal."""
        common_version(hello)
        self.check_open()
        token = self.tokens.find(hello.token)
        token_name = None if token is None else token.name
        if peer.kind == "tcp" and self.tokens.is_needed and token is None:
            raise Refusal(CudaError.NOT_PERMITTED, "a valid token is needed")
        if tenant_name(peer, token_name) in self.quarantined:
            raise Refusal(CudaError.NOT_PERMITTED, "the host's administrator has suspended this client")
        if token is not None and token.share is not None and self.config.share(token.share) is None:
            raise Refusal(
                CudaError.NOT_PERMITTED, f"the share {token.share!r} of this token is not configured any more"
            )
        log = self._log.bind(peer)
        if len(self.sessions) >= self.config.limits.max_sessions:
            self._end_an_idle_session(peer)
        try:
            share = share_of(self.config, peer, token)
            session = self.sessions.open(peer, hello.client, token_name, self.config.limits, log, share)
        except SessionLimitError as error:
            raise Refusal(CudaError.SYSTEM_NOT_READY, str(error)) from error
        session.pci = hello.pci
        self._metrics.sessions_opened += 1
        self._metrics.sessions_open += 1
        self._log.note(session, "session opened", comm=hello.client.comm, token=token_name, epoch=session.epoch)
        return session

    def features(self, hello: Hello, session: Session, *, has_region: bool, has_images: bool) -> tuple[str, ...]:
        """The features that both sides have. File descriptors travel only over unix sockets. A session that is recorded
        sends all on its socket, so that the recording has the contents."""
        offered: tuple[str, ...] = (QUOTAS,) if session.quotas.keys() & OBJECT_QUOTAS else ()
        is_recorded = self.config.records(session.tenant_name)
        shares_memory = self.config.shared_memory and not is_recorded
        if shares_memory and has_region:
            offered = (*offered, REGION)
        elif shares_memory and session.peer.kind == "unix":
            offered = (*offered, *FEATURES_OF_SHARED_MEMORY)
        if has_images and not is_recorded:
            offered = (*offered, "images")
        offered = (*offered, "progress", ACTIVITY)
        return tuple(feature for feature in offered if feature in hello.features)

    def _end_an_idle_session(self, newcomer: Peer) -> None:
        """End a session without a worker of the client that has most sessions, if `newcomer` has fewer."""
        idle = self.sessions.longest_idle(newcomer)
        if idle is not None:
            self._log.warn(idle.peer, "idle session ended for another client's", session=idle.number)
            self.close(idle)
            idle.end()

    def end(self, session: Session) -> None:
        """End a session at once, whether vgpud or a worker has its connection."""
        if session.worker is not None:
            session.worker.kill()  # the session is closed when it has been reaped
        else:
            self.close(session)
            session.end()

    def close(self, session: Session) -> None:
        """The session is over; does nothing if it is closed already."""
        if not self.sessions.close(session):
            return
        self._metrics.sessions_open = len(self.sessions)
        self._log.note(session, "session closed")
