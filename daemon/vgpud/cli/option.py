"""Options several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..endpoint import Endpoint, EndpointError, UnixEndpoint, default_endpoint, parse_endpoint

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
    """--endpoint, VGPU_ENDPOINT, or where a vgpud of this user or of the system listens by default."""
    return click.option(
        "--endpoint",
        type=EndpointType(),
        envvar="VGPU_ENDPOINT",
        default=lambda: str(_first_default()),
        show_default="VGPU_ENDPOINT, else the local vgpud",
        help="Where vgpud listens: unix:/path, tcp://host:port or vsock://cid:port.",
    )(function)


def token_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """VGPU_TOKEN; there is no option, for an argument would be in everybody's process list."""
    return click.option("--token", envvar="VGPU_TOKEN", hidden=True, default=None)(function)


def _first_default() -> Endpoint:
    """Our own user's vgpud if one is there, else the system's."""
    own, system = default_endpoint(), UnixEndpoint("/run/vgpu/vgpud.sock")
    return system if not Path(own.path).exists() and Path(system.path).exists() else own
