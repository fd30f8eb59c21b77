"""Log lines about clients, bounded for each: a flood by one hides no other client's lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vgpud.log import KeyedRateLimit, get_logger

if TYPE_CHECKING:
    from vgpud.log import Logger
    from vgpud.tenancy.peer import Peer
    from vgpud.tenancy.session import Session


class PeerLog:
    def __init__(self) -> None:
        self._log = get_logger()
        self._limits = KeyedRateLimit(rate=5.0, burst=100.0)  # by peer

    def bind(self, peer: Peer) -> Logger:
        """The log of a session of this peer."""
        return self._log.bind(peer=peer.key, pid=peer.pid)

    def note(self, session: Session, event: str, **fields: object) -> None:
        if self._limits.of(session.peer.key).allows():
            session.log.info(event, **fields)

    def warn(self, peer: Peer, event: str, **fields: object) -> None:
        limit = self._limits.of(peer.key)
        if limit.allows():
            self._log.warning(event, peer=peer.key, **fields, held_back=limit.take_suppressed() or None)
