"""The device memory that shares promise to tenants: a device has all of it, unless the configuration oversubscribes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .session import Session


def shortage(session: Session, others: Iterable[Session], fields: dict[str, Any]) -> str | None:
    """Why the memory of the session's share cannot be promised beside what `others` have been promised; None: it can.

    A tenant is promised the memory of its share once, on each device that it sees, while one of its sessions has a
    worker. Tenants without `memory_mib` are promised none.

    Args:
        session: it is about to get a worker.
        others: all sessions.
        fields: the host's INVENTORY (wire.md).
    """
    if session.memory_limit_nbytes is None:
        return None
    promised: dict[tuple[int, str], int] = {}  # by device and tenant
    for other in others:
        if other.worker is None and not other.attaching:
            continue
        for device in _seen(other, fields):
            key = device, other.tenant_name
            promised[key] = max(promised.get(key, 0), _promise(other, fields, device))
    for device in _seen(session, fields):
        own = _promise(session, fields, device)
        rest = sum(n for (d, tenant), n in promised.items() if d == device and tenant != session.tenant_name)
        if own and own + rest > (whole := fields["devices"][device]["memory_nbytes"]):
            return (
                f"device {device} of the host has {whole >> 20} MiB, of which {rest >> 20} are promised to other "
                f"tenants, and the share {session.share!r} has {own >> 20} (limits.oversubscribe_memory)"
            )
    return None


def _seen(session: Session, fields: dict[str, Any]) -> Iterable[int]:
    return range(len(fields["devices"])) if session.devices is None else session.devices


def _promise(session: Session, fields: dict[str, Any], device: int) -> int:
    """A share of more than the device has is the whole device."""
    whole: int = fields["devices"][device]["memory_nbytes"]
    return min(session.memory_limit_nbytes or 0, whole)
