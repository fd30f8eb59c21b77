"""Options several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from vgpu_guest.doctor.endpoint import find

from ..endpoint import Endpoint, EndpointError, UnixEndpoint, default_endpoint, parse_endpoint
from .fail import fail
from .status import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Callable


if TYPE_CHECKING:
    _EndpointParam = click.ParamType[Endpoint]
else:  # Debian's click has no type parameters yet
    _EndpointParam = click.ParamType


class EndpointType(_EndpointParam):
    """An endpoint's URL."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """click's hook: text to Endpoint."""
        if not isinstance(value, str):
            return value
        try:
            return parse_endpoint(value)
        except EndpointError as error:
            self.fail(str(error), param, ctx)


def endpoint_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--endpoint, else what a program would find (VGPU_ENDPOINT, guest.conf, ...), else this user's own vgpud."""
    return click.option(
        "--endpoint",
        type=EndpointType(),
        envvar="VGPU_ENDPOINT",
        default=_found,
        show_default="what a program would find",
        help="Where vgpud listens: unix:/path, tcp://host:port or vsock://cid:port.",
    )(function)


def token_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """The token of VGPU_TOKEN or guest.conf. --token is hidden: every user can read a command's arguments."""
    return click.option("--token", envvar="VGPU_TOKEN", hidden=True, default=lambda: find(os.environ)["token"] or None)(
        function
    )


def _found() -> str:
    """The endpoint that a program would find; if that is none or the system's, this user's own vgpud."""
    found, own = find(os.environ), default_endpoint()
    url = str(found["url"])
    if not url and found["configuration"] not in ("read", "absent") and not Path(own.path).exists():
        fail(f"{found['configuration_file']} cannot be read: {found['configuration']}", ExitStatus.UNAVAILABLE)
    is_default = url in ("", str(UnixEndpoint("/run/vgpu/vgpud.sock")))
    return str(own) if url == "" or (is_default and Path(own.path).exists()) else url
