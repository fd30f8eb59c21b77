"""A PCI stub as a process beside its VM: `vgpud.vm.pci_stub`, started with one end of a socket pair."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from vgpud.supervision.child_environment import child_environment

if TYPE_CHECKING:
    from .pci_config import PciIdentity


def start_stub(identity: PciIdentity) -> tuple[subprocess.Popen[bytes], int]:
    """Start the process that answers for one card.

    Returns:
        The process, and the other end, inheritable, for QEMU's `-device x-pci-proxy-dev,fd=N`; the process ends when
        the last copy of that end is closed.
    """
    ours, theirs = socket.socketpair()
    with ours:
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "vgpud.vm.pci_stub", "--fd", str(ours.fileno())),
                *("--id", f"{identity.vendor:04x}:{identity.device:04x}"),
                *("--subsystem", f"{identity.subsystem_vendor:04x}:{identity.subsystem_device:04x}"),
                *("--revision", f"{identity.revision:02x}"),
                *("--link", f"{identity.link[0]:x}:{identity.link[1]:x}"),
            ],
            env=child_environment(),
            pass_fds=(ours.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # QEMU handles Ctrl-C
        )
    theirs.set_inheritable(True)
    return process, theirs.detach()
