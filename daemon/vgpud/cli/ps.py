"""`vgpu ps`: the sessions of a running vgpud."""

from __future__ import annotations

import json

import click

from .admin_client import AdminClient, admin_command
from .session_table import format_sessions


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The whole documents.")
@admin_command
def ps(client: AdminClient, as_json: bool) -> None:
    """List the sessions of the local vgpud: whose, what they use and may use (for root and its owner)."""
    sessions = client.get("sessions")["sessions"]
    click.echo(json.dumps(sessions, indent=2) if as_json else format_sessions(sessions))
