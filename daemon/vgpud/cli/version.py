"""`vgpu version`."""

from __future__ import annotations

import click

from .. import __version__
from ..proto.message import VERSION_HIGHEST, VERSION_LOWEST


@click.command()
def version() -> None:
    """Print the versions of vgpu and of its protocol."""
    click.echo(f"vgpu {__version__}, protocol {VERSION_LOWEST}..{VERSION_HIGHEST}")
