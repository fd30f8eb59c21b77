"""`vgpu session`: look at one session of a running vgpud, or end it."""

from __future__ import annotations

import json

import click

from .admin_client import AdminClient, admin_command


@click.group()
def session() -> None:
    """Look at a session of the local vgpud, end it, or watch them all (for root and its owner)."""


@session.command()
@click.argument("number", type=int)
@admin_command
def show(client: AdminClient, number: int) -> None:
    """Print all that is known of a session, as JSON."""
    click.echo(json.dumps(client.get("sessions", str(number)), indent=2))


@session.command()
@click.argument("number", type=int)
@admin_command
def kill(client: AdminClient, number: int) -> None:
    """End a session at once. Its program gets an error at its next call."""
    client.request("DELETE", "sessions", str(number))


@session.command()
@admin_command
def watch(client: AdminClient) -> None:
    """Print what happens to sessions as it happens, a JSON document a line."""
    for event in client.watch():
        click.echo(json.dumps(event))
