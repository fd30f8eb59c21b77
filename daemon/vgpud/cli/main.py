"""Entry points: `vgpud` (the daemon) and `vgpu` (everything else)."""

from __future__ import annotations

import click

from .. import __version__
from .api import api
from .daemon import daemon
from .devices import devices
from .metrics import status
from .ping import ping
from .profiles import profiles
from .run import run
from .version import version

vgpud = daemon


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vgpu")
def vgpu() -> None:
    """GPUs for machines that have none."""


for _command in (run, devices, ping, profiles, api, status, version):
    vgpu.add_command(_command)
