"""`vgpu vm`: what concerns virtual machines, one command a module."""

from __future__ import annotations

import click

from .vm_exec import exec_qemu
from .vm_snippet import snippet


@click.group()
def vm() -> None:
    """Virtual machines."""


vm.add_command(exec_qemu)
vm.add_command(snippet)
