"""Which interface and gateway lead to an address. pyroute2 asks the kernel; without it the local address is shown."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

_classes: list[Any] = []  # IPRoute, once it is imported


def prepare() -> None:
    """Import pyroute2, which is optional and slow, before the program's place is entered."""
    with contextlib.suppress(ImportError):
        from pyroute2 import IPRoute  # type: ignore[import-untyped]

        _classes[:] = [IPRoute]


def describe_route(host: str, local: str) -> str:
    """Runs in the program's place: the route to a host, as in "dev eth0, via 10.0.0.1, from 10.0.0.7"."""
    try:
        return (_ask_kernel(host) if _classes else "") or _from(local)
    except Exception:  # an optional package of many versions; the route is evidence, never a verdict
        return _from(local)


def _from(local: str) -> str:
    return f"from {local}" if local else ""


def _ask_kernel(host: str) -> str:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with _classes[0]() as kernel:
        routes: list[Any] = list(kernel.route("get", dst=host, family=family))
        if not routes:
            return ""
        attributes = dict(routes[0]["attrs"])
        links = list(kernel.get_links(attributes["RTA_OIF"])) if "RTA_OIF" in attributes else []
        parts = []
        if links:
            facts = dict(links[0]["attrs"])
            parts.append(f"dev {facts.get('IFLA_IFNAME')} (mtu {facts.get('IFLA_MTU')})")
    if "RTA_GATEWAY" in attributes:
        parts.append(f"via {attributes['RTA_GATEWAY']}")
    if "RTA_PREFSRC" in attributes:
        parts.append(f"from {attributes['RTA_PREFSRC']}")
    return ", ".join(parts)
