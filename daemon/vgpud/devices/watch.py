"""Watches devices come and go, by the kernel's uevents of the PCI bus and the driver's Xid lines in its log. Only with
a real backend. A source that cannot be opened is reported once; the others are watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from typing import TYPE_CHECKING

from vgpud.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

_NETLINK_KOBJECT_UEVENT, _KERNELS_GROUP = 15, 1
_MESSAGE_NBYTES = 64 * 1024
_MESSAGES_A_TURN = 64
# NVIDIA's documentation of Xid: these leave a device that answers nothing until it is reset or the host restarts.
FATAL_XIDS = {79: "it has fallen off the bus", 119: "its firmware does not answer", 120: "its firmware has failed"}
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")


def parse_uevent(message: bytes) -> tuple[str, str] | None:
    """The action on a device of the PCI bus, and its address; None for anything else.

    A message is `ACTION@PATH` and then `KEY=VALUE`, each ended by a zero.
    """
    fields = dict(part.split("=", 1) for part in message.decode(errors="replace").split("\0") if "=" in part)
    if fields.get("SUBSYSTEM") != "pci" or "PCI_SLOT_NAME" not in fields:
        return None
    return fields.get("ACTION", ""), fields["PCI_SLOT_NAME"]


def parse_xid(line: str) -> tuple[str, int] | None:
    """The PCI address and number of an error that NVIDIA's driver reports in the kernel's log."""
    found = _XID.search(line)
    return None if found is None else (found[1], int(found[2]))


class DeviceWatch:
    """Calls `gone(address, why)`, `came(address)` and `failed(address, xid)`, on the event loop."""

    def __init__(
        self, gone: Callable[[str, str], object], came: Callable[[str], object], failed: Callable[[str, int], object]
    ) -> None:
        self._gone, self._came, self._failed = gone, came, failed
        self._uevents: socket.socket | None = None
        self._log_fd: int | None = None

    def start(self) -> None:
        """Begin to listen."""
        loop = asyncio.get_running_loop()
        try:
            sock = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_KOBJECT_UEVENT)
            sock.bind((0, _KERNELS_GROUP))
            sock.setblocking(False)
        except OSError as error:
            get_logger().warning("devices that come or go are not noticed", why=str(error))
        else:
            self._uevents = sock
            loop.add_reader(sock.fileno(), self._read_uevents)
        try:
            fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(fd, 0, os.SEEK_END)
        except OSError as error:
            get_logger().info("errors of the driver are not noticed", why=str(error))
        else:
            self._log_fd = fd
            loop.add_reader(fd, self._read_log)

    def close(self) -> None:
        """Listen no more."""
        loop = asyncio.get_running_loop()
        if self._uevents is not None:
            loop.remove_reader(self._uevents.fileno())
            self._uevents.close()
        if self._log_fd is not None:
            loop.remove_reader(self._log_fd)
            os.close(self._log_fd)
        self._uevents = self._log_fd = None

    def _read_uevents(self) -> None:
        for _ in range(_MESSAGES_A_TURN):
            assert self._uevents is not None
            try:
                message, (sender, _groups) = self._uevents.recvfrom(_MESSAGE_NBYTES)
            except OSError:
                return
            if sender == 0:  # the sender is the kernel; other processes can send here, too
                self.take_uevent(message)

    def take_uevent(self, message: bytes) -> None:
        """One message of the kernel."""
        event = parse_uevent(message)
        if event is None:
            return
        action, address = event
        if action in ("remove", "offline"):
            self._gone(address, "it has left the bus")
        elif action in ("add", "online"):
            self._came(address)

    def _read_log(self) -> None:
        for _ in range(_MESSAGES_A_TURN):
            assert self._log_fd is not None
            with contextlib.suppress(BrokenPipeError):  # lines were lost
                try:
                    self.take_line(os.read(self._log_fd, _MESSAGE_NBYTES).decode(errors="replace"))
                except BlockingIOError:
                    return

    def take_line(self, line: str) -> None:
        """One line of the kernel's log."""
        found = parse_xid(line)
        if found is None:
            return
        address, number = found
        self._failed(address, number)
        if number in FATAL_XIDS:
            self._gone(address, f"Xid {number}: {FATAL_XIDS[number]}")
