"""Asking a running vgpud over its admin socket (vgpud/admin/api.py)."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click
from vgpu_guest.lazy_group import UNWRITABLE

from ..endpoint import runtime_directory
from .fail import fail
from .status import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TIMEOUT_S = 10.0
_DOCUMENT_NBYTES = 64 * 1024 * 1024


class AdminError(Exception):
    """vgpud refuses the request; the text is one line."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class AdminClient:
    """Requests to one vgpud. All methods raise OSError or http.client.HTTPException when it does not answer."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, *parts: str) -> Any:
        """The document at a path below /v1. Raises AdminError."""
        return self.request("GET", *parts)

    def request(self, method: str, *parts: str, document: object = None, timeout_s: float = _TIMEOUT_S) -> Any:
        """Make one request; returns the document of the answer. Raises AdminError."""
        path = "/".join(["/v1", *(quote(part, safe="") for part in parts)])
        status, body = self._ask(method, path, None if document is None else json.dumps(document), timeout_s)
        found = json.loads(body)
        if status >= 400:
            raise AdminError(found.get("error", f"status {status}"))
        return found

    def metrics(self) -> str:
        """The metrics in Prometheus' text format. Raises AdminError."""
        status, body = self._ask("GET", "/metrics", None)
        if status >= 400:
            raise AdminError(body.decode())
        return body.decode()

    def _ask(self, method: str, path: str, body: str | None, timeout_s: float = _TIMEOUT_S) -> tuple[int, bytes]:
        """Make one request on a new connection; returns after vgpud has closed it and holds nothing for this client."""
        with contextlib.closing(_Connection(self.path)) as connection:
            connection.timeout = timeout_s
            connection.request(method, path, body=body, headers={"Connection": "close"})
            with socket.socket(fileno=os.dup(connection.sock.fileno())) as sock:
                response = connection.getresponse()
                answer = response.read(_DOCUMENT_NBYTES)
                sock.settimeout(_TIMEOUT_S)
                while sock.recv(4096):
                    pass
            return response.status, answer

    def watch(self) -> Iterator[dict[str, Any]]:
        """Events of sessions, as they happen."""
        with contextlib.closing(_Connection(self.path)) as connection:
            connection.request("GET", "/v1/watch")
            sock = connection.sock
            response = connection.getresponse()
            sock.settimeout(None)
            while line := response.readline():
                yield json.loads(line)


def admin_command(function: Callable[..., None]) -> Callable[..., None]:
    """Adds --admin, passes an AdminClient first, and turns failures into one line and an exit status."""

    @click.option(
        "--admin",
        type=click.Path(path_type=Path),
        default=lambda: str(runtime_directory() / "admin.sock"),
        help="The daemon's admin socket.",
    )
    @functools.wraps(function)
    def wrapped(admin: Path, **options: Any) -> None:
        try:
            function(AdminClient(admin), **options)
        except AdminError as error:
            fail(str(error), ExitStatus.FAILURE)
        except (OSError, ValueError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno in UNWRITABLE:
                raise  # standard output, not the socket
            fail(f"{admin}: {getattr(error, 'strerror', None) or 'no answer came'}", ExitStatus.UNAVAILABLE)

    return wrapped
