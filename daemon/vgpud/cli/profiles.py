"""`vgpu profiles`: the cards the simulator can be."""

from __future__ import annotations

import json

import click

from .table import format_nbytes, format_table


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def profiles(as_json: bool) -> None:
    """List the simulator's device profiles, as --gpu takes them."""
    from vgpusim.profiles import profile

    rows = []
    for key in profile.available():
        card = profile.load(key)
        major, minor = card.compute_capability
        rows.append([key, card.name, f"{major}.{minor}", format_nbytes(card.memory_nbytes)])
    if as_json:
        keys = ("profile", "name", "compute_capability", "memory")
        click.echo(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
        return
    click.echo(format_table(["PROFILE", "NAME", "CC", "MEMORY"], rows))
