"""`vgpu vm device`: a VM's vsock device as a separate service, which runs on while vgpud restarts."""

from __future__ import annotations

from pathlib import Path

import click

from vgpud.serving.listener import AlreadyRunningError, ListenError

from ..config import ConfigError, load_config
from ..vm.device import serve
from .fail import fail
from .status import ExitStatus


@click.command("device")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("/etc/vgpu/vgpud.toml"),
    show_default=True,
    help="vgpud's configuration.",
)
@click.argument("name")
def device(config_path: Path, name: str) -> None:
    """Be the vsock device of the VM NAME, for QEMU and for the vgpud that runs now or later; ends at SIGTERM.

    Without it vgpud starts one itself, which outlives vgpud but not the end of vgpud's systemd unit. Start this before
    vgpud, as the same user.
    """
    try:
        config = load_config(config_path)
    except ConfigError as error:
        fail(str(error), ExitStatus.CONFIG)
    vm = next((vm for vm in config.vm if vm.name == name), None)
    if vm is None or vm.vsock is None:
        fail(f"{config_path}: no [[vm]] {name!r} with a vsock socket", ExitStatus.CONFIG)
    try:
        serve(vm.name, vm.cid, vm.port, vm.vsock, vm.group)
    except AlreadyRunningError as error:
        fail(str(error), ExitStatus.ALREADY_RUNNING)
    except (ListenError, OSError) as error:
        fail(str(error), ExitStatus.SOFTWARE)
