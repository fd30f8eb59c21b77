"""The commands of `vgpu` that work in a guest; daemon/vgpud/cli adds them to its own.

In a guest's package, `vgpu` has only these commands.
"""

from __future__ import annotations

import click

from .lazy_group import LazyGroup

COMMANDS = {
    "cdi": "vgpu_guest.cdi_command:cdi",
    "connect": "vgpu_guest.connect_command:connect",
    "completion": "vgpu_guest.completion:completion",
    "doctor": "vgpu_guest.doctor.command:doctor",
    "install": "vgpu_guest.install_command:install",
    "repair": "vgpu_guest.install_command:repair",
    "uninstall": "vgpu_guest.install_command:uninstall",
}


# Commands that talk to vgpud are in the package `vgpud`; a guest's package has the modules of it that they need.
CLIENT_COMMANDS = {
    "api": "vgpud.cli.api:api",
    "devices": "vgpud.cli.devices:devices",
    "ping": "vgpud.cli.ping:ping",
    "run": "vgpud.cli.run:run",
    "smi": "vgpud.cli.smi:smi",
    "version": "vgpud.cli.version:version",
}


def packaged() -> click.Group:
    """The command `vgpu` of a guest's package."""
    from vgpud import __version__

    group = LazyGroup(
        "vgpu",
        places=COMMANDS | CLIENT_COMMANDS,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="GPUs for machines that have none: the guest's side.",
    )
    return click.version_option(__version__, prog_name="vgpu")(group)


@click.group(cls=LazyGroup, places=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def vgpu() -> None:
    """GPUs for machines that have none: the guest's side."""
