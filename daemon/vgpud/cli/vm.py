"""`vgpu vm`: what concerns virtual machines, one command a module."""

from __future__ import annotations

import click

from .vm_exec import exec_qemu


@click.group()
def vm() -> None:
    """Virtual machines."""


vm.add_command(exec_qemu)
