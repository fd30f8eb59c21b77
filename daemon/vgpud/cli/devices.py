"""`vgpu devices`: what a guest sees."""

from __future__ import annotations

import json
import struct
import uuid
from typing import TYPE_CHECKING, Any

import click

from vgpud.devices.inventory_check import InventoryError, check_inventory

from ..proto import RemoteProtocolError
from .client import Client
from .fail import reported
from .option import endpoint_option, token_option
from .table import format_nbytes, format_table

if TYPE_CHECKING:
    from ..endpoint import Endpoint

_COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable, with every attribute.")
@endpoint_option
@token_option
def devices(as_json: bool, endpoint: Endpoint, token: str | None) -> None:
    """List the devices a program would see."""
    with reported(endpoint), Client(endpoint, token=token) as client:
        inventory = client.hello().inventory
        try:
            check_inventory(inventory)
        except InventoryError as error:
            raise RemoteProtocolError(str(error)) from error
        rows = [_describe(index, device) for index, device in enumerate(inventory["devices"])]
    if as_json:
        general = {key: inventory[key] for key in ("driver_version", "driver_release", "backend")}
        click.echo(json.dumps(general | {"devices": rows}, indent=2))
        return
    table = [
        [
            row["index"],
            row["name"],
            row["uuid"],
            row["pci"],
            format_nbytes(row["memory_nbytes"]),
            row["compute_capability"],
            inventory["backend"],
        ]
        for row in rows
    ]
    click.echo(format_table(["GPU", "NAME", "UUID", "PCI", "MEMORY", "CC", "BACKEND"], table))


def _describe(index: int, device: dict[str, Any]) -> dict[str, Any]:
    attributes = struct.unpack(f"<{len(device['attributes']) // 4}i", device["attributes"])
    major, minor = (attributes[i] if i < len(attributes) else -1 for i in _COMPUTE_CAPABILITY)
    known = {str(i): value for i, value in enumerate(attributes) if value != -(2**31)}
    return {
        "index": index,
        "name": device["name"],
        "uuid": f"GPU-{uuid.UUID(bytes=device['uuid'])}",
        "pci": device["pci"],
        "memory_nbytes": device["memory_nbytes"],
        "compute_capability": f"{major}.{minor}",
        "attributes": known,
    }
