"""The commands of `vgpu` that work in a guest; daemon/vgpud/cli adds them to its own.

In a guest's package they are all there is of `vgpu`.
"""

from __future__ import annotations

import click

from .cdi_command import cdi
from .doctor.command import doctor
from .install_command import install, repair, uninstall

commands: tuple[click.Command, ...] = (cdi, doctor, install, repair, uninstall)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def vgpu() -> None:
    """GPUs for machines that have none: the guest's side."""


for _command in commands:
    vgpu.add_command(_command)
