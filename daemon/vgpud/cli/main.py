"""Entry points: `vgpud` (the daemon) and `vgpu` (everything else)."""

from __future__ import annotations

import click
from vgpu_guest.cli import COMMANDS as GUEST_COMMANDS
from vgpu_guest.lazy_group import LazyGroup

from .. import __version__

COMMANDS = {
    "api": "vgpud.cli.api:api",
    "bench": "vgpud.cli.bench:bench",
    "device": "vgpud.cli.device:device",
    "devices": "vgpud.cli.devices:devices",
    "torch": "vgpud.cli.torch:torch",
    "metrics": "vgpud.cli.metrics:metrics",
    "status": "vgpud.cli.status_command:status",
    "ping": "vgpud.cli.ping:ping",
    "ps": "vgpud.cli.ps:ps",
    "replay": "vgpud.cli.replay:replay",
    "restart": "vgpud.cli.restart:restart",
    "profiles": "vgpud.cli.profiles:profiles",
    "run": "vgpud.cli.run:run",
    "sanitize": "vgpud.cli.sanitize:sanitize",
    "session": "vgpud.cli.session:session",
    "sim": "vgpud.cli.sim:sim",
    "smi": "vgpud.cli.smi:smi",
    "tenant": "vgpud.cli.tenant:tenant",
    "token": "vgpud.cli.token:token",
    "top": "vgpud.cli.top:top",
    "version": "vgpud.cli.version:version",
    "vm": "vgpud.cli.vm:vm",
}


def vgpud() -> None:
    """The daemon's entry point."""
    from .daemon import daemon

    daemon(prog_name="vgpud")


@click.group(
    cls=LazyGroup,
    places=COMMANDS | GUEST_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="vgpu")
def vgpu() -> None:
    """GPUs for machines that have none."""
