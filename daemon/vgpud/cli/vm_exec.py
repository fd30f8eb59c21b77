"""`vgpu vm exec`: start QEMU with a PCI device for each GPU, so that a guest sees a card and its address."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

import click

from vgpud.devices.inventory import InventoryError, load_inventory

from ..vm import gpu_identity
from ..vm.stub_process import start_stub
from .client import Client
from .fail import fail, reported
from .option import endpoint_option, token_option
from .status import ExitStatus

if TYPE_CHECKING:
    from ..endpoint import Endpoint

_VERSION_TIMEOUT_S = 10
_KNOWN_VERSION = (7, 2)
_SHARED = re.compile(r'share=(on|yes|true)|"share":\s*true')
_SLOTS = 32  # of a PCI bus


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.option("--gpu", "gpus", metavar="PROFILES", help='Show these cards, as in "h100:2,t4", without asking a vgpud.')
@click.option("--slot", default=5, show_default=True, type=click.IntRange(1, _SLOTS - 1), help="The first card's slot.")
@endpoint_option
@token_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_qemu(gpus: str | None, slot: int, endpoint: Endpoint, token: str | None, command: tuple[str, ...]) -> None:
    """Start COMMAND, a QEMU 7.2, in our place, with a PCI stub for each card of vgpud.

    The guest then finds vgpud without being told, and CUDA's PCI addresses are those its lspci shows. Everything works
    without stubs, too. The VM's memory must be shared (memory-backend-memfd, share=on).
    """
    _check_qemu(command)
    if gpus is None:
        with reported(endpoint), Client(endpoint, token=token) as client:
            identities = gpu_identity.of_daemon(client)
    else:
        try:
            identities = gpu_identity.of_profiles(load_inventory("simulator", gpus, ""))
        except InventoryError as error:
            fail(str(error), ExitStatus.USAGE)
    if slot + len(identities) > _SLOTS:
        fail(f"{len(identities)} cards from slot {slot} on do not fit on a bus of {_SLOTS}", ExitStatus.USAGE)
    arguments = list(command)
    for index, identity in enumerate(identities):
        _process, fd = start_stub(identity)  # QEMU's child after execvp
        arguments += ["-device", f"x-pci-proxy-dev,id=vgpu{index},fd={fd},addr={slot + index:#x}"]
    try:
        os.execvp(arguments[0], arguments)
    except OSError as error:
        fail(f"{arguments[0]}: {error.strerror}", ExitStatus.NOT_EXECUTABLE)


def _check_qemu(command: tuple[str, ...]) -> None:
    try:
        said = subprocess.run(
            [command[0], "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        ).stdout
    except FileNotFoundError:
        fail(f"{command[0]}: not found", ExitStatus.NOT_FOUND)
    except (OSError, subprocess.TimeoutExpired) as error:
        fail(f"{command[0]} --version: {error}", ExitStatus.NOT_EXECUTABLE)
    found = re.search(r"QEMU emulator version (\d+)\.(\d+)", said)
    if found is None:
        fail(f"{command[0]} is no QEMU", ExitStatus.USAGE)
    if (int(found[1]), int(found[2])) != _KNOWN_VERSION:
        fail(
            f"{found[0]}: stubs work with QEMU 7.2 (Debian 12's) alone, and QEMU 10 crashes at its start with one; "
            "start the VM without `vgpu vm exec`: a guest with a vsock device and `endpoint = vsock://2:7070` in "
            "/etc/vgpu/guest.conf needs no stub",
            ExitStatus.UNAVAILABLE,
        )
    if not any(_SHARED.search(argument) for argument in command):
        fail(
            "a stub needs shared guest memory: -object memory-backend-memfd,id=ram,size=SIZE,share=on "
            "-machine memory-backend=ram",
            ExitStatus.USAGE,
        )
