"""Which devices are in service. A device leaves service when it disappears from the bus or stops answering there, or by
the administrator's order; it keeps its number. Sessions that have used it end, and contexts on it are refused until it
is back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vgpud.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

IN_SERVICE = ""
DEVICES_MAX = 64  # bits of the word that workers read


class Presence:
    """The state of each device: why it is out of service, or IN_SERVICE. All methods run on the event loop."""

    def __init__(self, addresses: Sequence[str], changed: Callable[[int], object] = lambda _mask: None) -> None:
        """`addresses`: each device's PCI address. `changed`: called with each new mask."""
        self._addresses = [address.lower() for address in addresses]
        self._why = [IN_SERVICE] * len(addresses)
        self._changed = changed

    def why(self, device: int) -> str:
        """Why the device is out of service. IN_SERVICE also for a number that no device has, such as -1."""
        return self._why[device] if 0 <= device < len(self._why) else IN_SERVICE

    @property
    def states(self) -> list[str]:
        """The state of each device."""
        return list(self._why)

    @property
    def mask(self) -> int:
        """A bit for each device that is out of service."""
        return sum(1 << device for device, why in enumerate(self._why) if why and device < DEVICES_MAX)

    def at(self, address: str) -> int | None:
        """The device at a PCI address, with or without the function: `0000:01:00.0`, `0000:01:00`."""
        wanted = address.lower()
        for device, known in enumerate(self._addresses):
            if wanted in (known, known.rpartition(".")[0]):
                return device
        return None

    def withdraw(self, device: int, why: str) -> bool:
        """Take the device out of service. False: it already was. Raises IndexError."""
        if self._why[device]:
            return False
        self._why[device] = why or "withdrawn"
        get_logger().warning("device out of service", device=device, address=self._addresses[device], why=why)
        self._changed(self.mask)
        return True

    def restore(self, device: int) -> bool:
        """Put the device back into service. False: it already was. Raises IndexError."""
        if not self._why[device]:
            return False
        self._why[device] = IN_SERVICE
        get_logger().info("device in service again", device=device, address=self._addresses[device])
        self._changed(self.mask)
        return True
