"""`vgpu token`: let clients in by tokens that a running vgpud issues."""

from __future__ import annotations

import json

import click

from .admin_client import AdminClient, admin_command
from .table import format_table


@click.group()
def token() -> None:
    """Issue, list and revoke tokens of the local vgpud (for root and its owner).

    An issued token is good until it expires or is revoked; without a state_dir, until vgpud ends.
    """


@token.command()
@click.argument("name")
@click.option("--share", help="The [[shares]] of the configuration that its clients have.")
@click.option("--lifetime", "lifetime_s", type=click.FloatRange(1.0), metavar="SECONDS", help="Then it expires.")
@admin_command
def issue(client: AdminClient, name: str, share: str | None, lifetime_s: float | None) -> None:
    """Make a token and print its value, which is shown this once."""
    order = {"name": name, "share": share, "lifetime_s": lifetime_s}
    click.echo(client.request("POST", "tokens", document=order)["value"])


@token.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="The whole documents.")
@admin_command
def list_(client: AdminClient, as_json: bool) -> None:
    """List the tokens: names, never values."""
    tokens = client.get("tokens")["tokens"]
    if as_json:
        click.echo(json.dumps(tokens, indent=2))
        return
    keys = ["name", "share", "source", "expires_in_s"]
    rows = [["-" if each[key] is None else each[key] for key in keys] for each in tokens]
    click.echo(format_table(["NAME", "SHARE", "SOURCE", "EXPIRES_IN_S"], rows))


@token.command()
@click.argument("name")
@admin_command
def revoke(client: AdminClient, name: str) -> None:
    """Revoke an issued token: admit nobody by it any more, and end the sessions that were opened with it."""
    ended = client.request("DELETE", "tokens", name)["ended"]
    click.echo(f"{len(ended)} sessions ended")
