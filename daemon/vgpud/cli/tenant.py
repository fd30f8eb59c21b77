"""`vgpu tenant`: keep a tenant out of a running vgpud, and let it in again."""

from __future__ import annotations

import json

import click

from .admin_client import AdminClient, admin_command


@click.group()
def tenant() -> None:
    """Put a tenant of the local vgpud in quarantine, or release it (for root and its owner).

    A tenant is named as `vgpu ps` shows it: uid:1000, vm:lab, host:192.0.2.7, token:job-7.
    """


@tenant.command()
@click.argument("name")
@admin_command
def quarantine(client: AdminClient, name: str) -> None:
    """End a tenant's sessions, and refuse its clients until it is released or vgpud ends."""
    ended = client.request("PUT", "quarantine", name)["ended"]
    click.echo(f"{len(ended)} sessions ended")


@tenant.command()
@click.argument("name")
@admin_command
def release(client: AdminClient, name: str) -> None:
    """Let a tenant's clients in again."""
    client.request("DELETE", "quarantine", name)


@tenant.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@admin_command
def list_(client: AdminClient, as_json: bool) -> None:
    """List the tenants in quarantine."""
    names = client.get("quarantine")["tenants"]
    for line in [json.dumps(names, indent=2)] if as_json else names:
        click.echo(line)
