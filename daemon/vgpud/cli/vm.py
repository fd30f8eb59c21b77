"""`vgpu vm`: what concerns virtual machines, one command a module."""

from __future__ import annotations

import click
from vgpu_guest.lazy_group import LazyGroup

COMMANDS = {
    "device": "vgpud.cli.vm_device:device",
    "exec": "vgpud.cli.vm_exec:exec_qemu",
    "snippet": "vgpud.cli.vm_snippet:snippet",
}


@click.group(cls=LazyGroup, places=COMMANDS)
def vm() -> None:
    """Virtual machines."""
