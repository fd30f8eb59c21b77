"""`vgpu profiles`: the cards the simulator can be."""

from __future__ import annotations

import click

from .table import format_nbytes, format_table


@click.command()
def profiles() -> None:
    """List the simulator's device profiles, as --gpu takes them."""
    from vgpusim.profiles import profile

    rows = []
    for key in profile.available():
        card = profile.load(key)
        major, minor = card.compute_capability
        rows.append([key, card.name, f"{major}.{minor}", format_nbytes(card.memory_nbytes)])
    click.echo(format_table(["PROFILE", "NAME", "CC", "MEMORY"], rows))
