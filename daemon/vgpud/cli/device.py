"""`vgpu device`: take a device of a running vgpud out of service, and put it back."""

from __future__ import annotations

import json

import click

from .admin_client import AdminClient, admin_command
from .table import format_table


@click.group()
def device() -> None:
    """Take a device out of service, or put it back (for root and vgpud's owner).

    A device that vanishes from the bus, or falls off it, leaves service by itself.
    """


@device.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="The whole documents.")
@admin_command
def list_(client: AdminClient, as_json: bool) -> None:
    """List the devices; for one that is out of service also why."""
    devices = client.get("devices")["devices"]
    if as_json:
        click.echo(json.dumps(devices, indent=2))
        return
    rows = [[each["device"], each["name"], each["out_of_service"] or "-"] for each in devices]
    click.echo(format_table(["DEVICE", "NAME", "OUT_OF_SERVICE"], rows))


@device.command()
@click.argument("number", type=int)
@click.option(
    "--why", default="withdrawn by the administrator", help="The reason that clients get when they ask for the device."
)
@admin_command
def withdraw(client: AdminClient, number: int, why: str) -> None:
    """End the sessions that have used a device, and let nobody use it."""
    ended = client.request("DELETE", "devices", str(number), "service", document={"why": why})["ended"]
    click.echo(f"{len(ended)} sessions ended")


@device.command()
@click.argument("number", type=int)
@admin_command
def restore(client: AdminClient, number: int) -> None:
    """Put a device back into service."""
    client.request("PUT", "devices", str(number), "service")
