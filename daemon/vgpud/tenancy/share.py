"""Which share of the devices a client has: its token's, its VM's, its user's, or the default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vgpud.config import Config
    from vgpud.config_tables import ShareConfig

    from .peer import Peer
    from .token import Token


def share_of(config: Config, peer: Peer, token: Token | None) -> ShareConfig | None:
    """The most specific share in the configuration; None: only vgpud's own limits."""
    name = None if token is None else token.share
    if name is None and peer.vm is not None:
        name = next((vm.share for vm in config.vm if vm.name == peer.vm), None)
    if name is None and peer.kind == "unix":
        name = next((user.share for user in config.users if user.uid == peer.uid), None)
    return config.share(config.default_share if name is None else name)


def within(fields: dict[str, Any], memory_limit_nbytes: int | None) -> dict[str, Any]:
    """The INVENTORY as a client with this much memory of each device sees it; the given one is not changed."""
    if memory_limit_nbytes is None:
        return fields
    devices = [
        device | {"memory_nbytes": min(device["memory_nbytes"], memory_limit_nbytes)} for device in fields["devices"]
    ]
    return fields | {"devices": devices}
