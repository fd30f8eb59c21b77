"""Entry points: `vgpud` (the daemon) and `vgpu` (everything else)."""

from __future__ import annotations

import click
from vgpu_guest.cli import commands as guest_commands

from .. import __version__
from .api import api
from .devices import devices
from .metrics import status
from .ping import ping
from .profiles import profiles
from .run import run
from .smi import smi
from .version import version
from .vm import vm


def vgpud() -> None:
    """The daemon's entry point. Imported only when it is wanted: `vgpu run` starts faster without."""
    from .daemon import daemon

    daemon(prog_name="vgpud")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vgpu")
def vgpu() -> None:
    """GPUs for machines that have none."""


for _command in (run, devices, smi, ping, profiles, api, status, version, vm, *guest_commands):
    vgpu.add_command(_command)
