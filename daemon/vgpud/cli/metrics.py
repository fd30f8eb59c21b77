"""`vgpu metrics`: a running vgpud's metrics."""

from __future__ import annotations

import click

from .admin_client import AdminClient, admin_command


@click.command()
@admin_command
def metrics(client: AdminClient) -> None:
    """Print the metrics of the local vgpud in Prometheus' text format (for root and its owner)."""
    click.echo(client.metrics(), nl=False)
