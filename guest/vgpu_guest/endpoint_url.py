"""Which endpoints may be written into configuration files: those without special characters."""

from __future__ import annotations

import re

from .endpoint import EndpointError, UnixEndpoint, parse_endpoint

__all__ = ["EndpointError", "check_endpoint", "socket_path"]


def check_endpoint(url: str) -> str:
    """Return the URL unchanged if it is valid.

    Raises:
        EndpointError: it is not an endpoint, or has characters that mean something in a unit or a shell.
    """
    parse_endpoint(url)
    if not url.isascii() or re.search(r"[\s\"'\\$%]", url):
        raise EndpointError(f"{url!r}: in a file an endpoint has plain characters alone, no blanks or quotes")
    return url


def socket_path(url: str) -> str | None:
    """The path in a `unix:` URL; None for other URLs."""
    endpoint = parse_endpoint(url)
    return endpoint.path if isinstance(endpoint, UnixEndpoint) else None
