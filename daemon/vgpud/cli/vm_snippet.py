"""`vgpu vm snippet`: lines to paste into configurations to connect a VM."""

from __future__ import annotations

import re

import click

from ..config import ConfigError, parse_config
from ..vm.snippet import MONITORS, PARTS, SHARE_MEMORY, VSOCKS, Vm
from .fail import fail
from .status import ExitStatus


@click.command()
@click.option("--for", "monitor", required=True, type=click.Choice([*MONITORS]), help="What runs the VM.")
@click.option("--cid", required=True, type=click.IntRange(3, 2**32 - 2), help="The VM's vsock address; its own alone.")
@click.option("--name", default="guest", show_default=True, help="The VM's name, in vgpud's log and metrics.")
@click.option(
    "--vsock", type=click.Choice(VSOCKS), help="How, where there is a choice. [default: what needs no module]"
)
@click.option("--socket", help="Where the VM's monitor and vgpud meet. [default: /run/vgpu/vm/NAME.sock]")
@click.option("--memory", default="4G", show_default=True, help="The guest's memory, as after QEMU's -m.")
@click.option("--shared-mib", type=click.IntRange(32, 1 << 20), help="Share this much memory, a power of two.")
@click.option("--part", type=click.Choice(PARTS), help="Only this one's lines, without headings.")
def snippet(
    monitor: str,
    cid: int,
    name: str,
    vsock: str | None,
    socket: str | None,
    memory: str,
    shared_mib: int | None,
    part: str | None,
) -> None:
    """Print what connects a VM: lines for vgpud's configuration, for the VM's monitor, and for the guest."""
    ways = MONITORS[monitor]
    if vsock is not None and vsock not in ways:
        fail(f"{monitor} has no {vsock} vsock here, but {' and '.join(ways)}", ExitStatus.USAGE)
    if not re.fullmatch(r"[1-9][0-9]*[MG]", memory):
        fail(f"--memory {memory}: a size is written 512M or 4G", ExitStatus.USAGE)
    if shared_mib is not None and monitor not in SHARE_MEMORY:
        fail(f"{monitor} has no ivshmem device to share memory by", ExitStatus.USAGE)
    vm = Vm(monitor, name, cid, vsock or ways[0], memory, socket or f"/run/vgpu/vm/{name}.sock", shared_mib)
    try:
        parse_config(vm.part("vgpud"), source="vgpud.toml")
    except ConfigError as error:
        fail(f"vgpud would not take this: {error}", ExitStatus.USAGE)
    if part is not None:
        click.echo(vm.part(part), nl=False)
        return
    click.echo("\n".join(vm.part(which) for which in PARTS), nl=False)
