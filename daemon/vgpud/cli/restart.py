"""`vgpu restart`: the installed vgpud takes the place of the running one, and every session goes on."""

from __future__ import annotations

import http.client
import time

import click

from .admin_client import AdminClient, AdminError, admin_command
from .fail import fail
from .status import ExitStatus

_TIMEOUT_S = 60.0
_PAUSE_S = 0.1


@click.command()
@admin_command
def restart(client: AdminClient) -> None:
    """Replace the running vgpud by the installed one, for an upgrade or a changed configuration.

    Workers, and so the programs that use them, do not notice. Clients that come meanwhile wait. Clients over TLS are
    disconnected. If the installed vgpud refuses the configuration, nothing happens.
    """
    before = client.request("POST", "restart", timeout_s=_TIMEOUT_S)["generation"]
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        try:
            status = client.get("status")
        except (AdminError, OSError, ValueError, http.client.HTTPException):
            continue  # vgpud is being replaced
        if status["generation"] > before:
            click.echo(f"restarted in place: {len(status['sessions'])} sessions go on")
            return
    fail(f"vgpud does not answer {_TIMEOUT_S:.0f} s after its restart: see its log", ExitStatus.UNAVAILABLE)
