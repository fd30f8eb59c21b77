"""`vgpu version`."""

from __future__ import annotations

import json

import click

from .. import __version__
from ..proto.message import VERSION_HIGHEST, VERSION_LOWEST


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def version(as_json: bool) -> None:
    """Print the versions of vgpu and of its protocol."""
    if as_json:
        click.echo(json.dumps({"vgpu": __version__, "protocol": [VERSION_LOWEST, VERSION_HIGHEST]}))
        return
    click.echo(f"vgpu {__version__}, protocol {VERSION_LOWEST}..{VERSION_HIGHEST}")
