"""Protocol errors, by the side that caused them: this one or the peer."""

from __future__ import annotations


class ProtocolError(Exception):
    """Either side did something protocol/wire.md forbids."""


class LocalProtocolError(ProtocolError):
    """Our own code asked for something the protocol's state forbids: a bug here."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something the protocol forbids. Its text is safe to log and to send back.

    `speaks_vgpu` is false when the peer did not even send the magic: an answer would be noise to it.
    """

    def __init__(self, reason: str, *, speaks_vgpu: bool = True) -> None:
        super().__init__(reason)
        self.speaks_vgpu = speaks_vgpu
