"""The commands of `vgpu` that work in a guest; daemon/vgpud/cli adds them to its own.

In a guest's package they are all there is of `vgpu`.
"""

from __future__ import annotations

import click

from .lazy_group import LazyGroup

COMMANDS = {
    "cdi": "vgpu_guest.cdi_command:cdi",
    "doctor": "vgpu_guest.doctor.command:doctor",
    "install": "vgpu_guest.install_command:install",
    "repair": "vgpu_guest.install_command:repair",
    "uninstall": "vgpu_guest.install_command:uninstall",
}


@click.group(cls=LazyGroup, places=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def vgpu() -> None:
    """GPUs for machines that have none: the guest's side."""
