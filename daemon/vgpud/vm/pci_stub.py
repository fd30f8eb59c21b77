"""The remote end of QEMU's x-pci-proxy-dev: serves one ConfigSpace over a socket to one VM, until QEMU closes it.

QEMU (7.2, multi-process) sends messages of a 16-byte header {i32 command, 4 bytes of padding, u64 payload bytes} and a
payload of the command's own size, and waits for an answer to each access. The machine's memory and an interrupt come as
file descriptors that this device has no use for: they are closed. Whatever does not fit ends the device, with a reason.

    python -m vgpud.vm.pci_stub --fd 5 --id 10de:2331 --subsystem 10de:1626      # as `vgpu vm exec` starts it
"""

from __future__ import annotations

import argparse
import array
import os
import socket
import struct
import sys
from enum import IntEnum

from ..worker.confine import confine
from .pci_config import CONFIG_NBYTES, ConfigSpace, PciIdentity

_FDS_MAX = 8  # REMOTE_MAX_FDS
_MESSAGE_TIMEOUT_S = 30.0  # for the rest of a message: QEMU may be stopped by a debugger, but not without end
_HEADER = struct.Struct("<i4xQ")
_ANSWER = struct.Struct("<i4xQQ")
_CONFIG_ACCESS = struct.Struct("<IIi")  # address, value, bytes
_BAR_ACCESS = struct.Struct("<QQIB3x")  # address, value, bytes, is memory


class Command(IntEnum):
    """MPQemuCmd."""

    SYNC_SYSMEM = 0
    RET = 1
    PCI_CFGWRITE = 2
    PCI_CFGREAD = 3
    BAR_WRITE = 4
    BAR_READ = 5
    SET_IRQFD = 6
    DEVICE_RESET = 7


_PAYLOAD_NBYTES = {
    Command.SYNC_SYSMEM: 24 * 8,  # eight regions: addresses, sizes, offsets
    Command.PCI_CFGWRITE: _CONFIG_ACCESS.size,
    Command.PCI_CFGREAD: _CONFIG_ACCESS.size,
    Command.BAR_WRITE: _BAR_ACCESS.size,
    Command.BAR_READ: _BAR_ACCESS.size,
    Command.SET_IRQFD: 0,
    Command.DEVICE_RESET: 0,
}


class PciStubError(Exception):
    """QEMU said something that this device does not understand; the text is fit for a log."""


def serve(sock: socket.socket, space: ConfigSpace) -> None:
    """Answer until the peer closes the socket.

    Raises:
        PciStubError: the peer broke the protocol.
        OSError: the socket failed (TimeoutError: in the middle of a message).
    """
    while True:
        sock.settimeout(None)
        message = _receive(sock)
        if message is None:
            return
        value = _execute(space, *message)
        if value is not None:
            sock.sendall(_ANSWER.pack(Command.RET, 8, value))


def _receive(sock: socket.socket) -> tuple[Command, bytes] | None:
    """The next message; None at the end of the stream."""
    header = _read(sock, _HEADER.size, at_start=True)
    if not header:
        return None
    number, nbytes = _HEADER.unpack(header)
    if number not in _PAYLOAD_NBYTES:
        raise PciStubError(f"unknown command {number}")
    command = Command(number)
    if nbytes != _PAYLOAD_NBYTES[command]:
        raise PciStubError(f"{command.name} with {nbytes} bytes instead of {_PAYLOAD_NBYTES[command]}")
    return command, _read(sock, nbytes)


def _read(sock: socket.socket, nbytes: int, *, at_start: bool = False) -> bytes:
    """Exactly `nbytes` bytes, or none at the end of the stream with `at_start`. Received descriptors are closed."""
    data = b""
    while len(data) < nbytes:
        piece, ancillary, _flags, _address = sock.recvmsg(nbytes - len(data), socket.CMSG_SPACE(4 * _FDS_MAX))
        for level, kind, passed in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                for fd in array.array("i", passed[: len(passed) // 4 * 4]):
                    os.close(fd)
        if not piece:
            if at_start and not data:
                return b""
            raise PciStubError("the end of the stream, within a message")
        data += piece
        sock.settimeout(_MESSAGE_TIMEOUT_S)
    return data


def _execute(space: ConfigSpace, command: Command, payload: bytes) -> int | None:
    """The answer; None where QEMU does not wait for one."""
    match command:
        case Command.PCI_CFGREAD | Command.PCI_CFGWRITE:
            at, value, nbytes = _CONFIG_ACCESS.unpack(payload)
            if nbytes not in (1, 2, 4) or at > CONFIG_NBYTES - nbytes:
                raise PciStubError(f"{command.name} of {nbytes} bytes at {at}")
            if command is Command.PCI_CFGREAD:
                return space.read(at, nbytes)
            space.write(at, nbytes, value)
            return 0
        case Command.BAR_READ | Command.BAR_WRITE:
            _at, _value, nbytes, _memory = _BAR_ACCESS.unpack(payload)
            if nbytes not in (1, 2, 4, 8):
                raise PciStubError(f"{command.name} of {nbytes} bytes")
            return 0  # nothing is behind the registers, wherever in them this is
        case Command.DEVICE_RESET:
            space.reset()
            return 0
        case _:
            return None


def _identity(arguments: argparse.Namespace) -> PciIdentity:
    (vendor, device), (subsystem_vendor, subsystem_device) = arguments.id, arguments.subsystem
    return PciIdentity(vendor, device, subsystem_vendor, subsystem_device, arguments.revision, arguments.link)


def _numbers(text: str) -> tuple[int, int]:
    first, _, second = text.partition(":")
    return int(first, 16), int(second, 16)


def main() -> int:
    """The helper process: one device, for as long as its VM lives."""
    parser = argparse.ArgumentParser(prog="vgpud.vm.pci_stub")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--id", type=_numbers, required=True)
    parser.add_argument("--subsystem", type=_numbers, required=True)
    parser.add_argument("--revision", type=lambda text: int(text, 16), default=0xA1)
    parser.add_argument("--link", type=_numbers, default=(0, 0))
    arguments = parser.parse_args()
    try:
        space = ConfigSpace(_identity(arguments))
    except ValueError as error:
        parser.error(str(error))
    confine()  # QEMU is on the other side, and its guest may have taken it over
    with socket.socket(fileno=arguments.fd) as sock:
        try:
            serve(sock, space)
        except (PciStubError, OSError) as error:
            print(f"vgpu: the PCI stub has ended: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
