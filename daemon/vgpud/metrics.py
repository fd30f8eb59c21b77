"""Counters of the running daemon, shown by `vgpu status`. Their names are fixed: no label is taken from a client."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cudaerror import CudaError


@dataclass(slots=True)
class Metrics:
    """Plain integers, all counted on the event loop."""

    started_at: float = field(default_factory=time.monotonic)
    connections_accepted: int = 0
    connections_pending: int = 0
    connections_dropped: int = 0  # closed without an answer: wrong magic, too late, gone
    sessions_open: int = 0
    sessions_opened: int = 0
    sessions_attached: int = 0
    nbytes_before_admission: int = 0
    pings: int = 0
    nvml_questions: int = 0
    workers_started: int = 0
    workers_ended: int = 0
    workers_failed: int = 0  # ended by a signal or a nonzero code
    warm_workers_taken: int = 0  # clients whose context had been created in advance
    workers_killed: int = 0  # by vgpud, because they outlived their client
    image_hits: int = 0  # images of 64 KiB and more that a client did not need to send
    image_misses: int = 0
    image_nbytes_spared: int = 0
    image_nbytes_uploaded: int = 0  # and verified
    images_refused: int = 0  # their digest did not match, or they were too large
    images_held: int = 0
    image_nbytes_held: int = 0
    image_tenants: int = 0
    ipc_objects: int = 0  # allocations and events that clients share now
    xids: dict[int, int] = field(default_factory=dict)  # by device, the driver's last error
    refusals: Counter[str] = field(default_factory=Counter)

    def count_refusal(self, code: CudaError) -> None:
        """One client was turned down."""
        self.refusals[code.name] += 1

    def dump(self) -> dict[str, Any]:
        """All counters but the gauges, for restore() in the next vgpud."""
        gauges = (
            "connections_pending",
            "sessions_open",
            "images_held",
            "image_nbytes_held",
            "image_tenants",
            "ipc_objects",
        )
        return {name: getattr(self, name) for name in self.__slots__ if name not in gauges}

    def restore(self, counters: dict[str, Any]) -> None:
        """Continue the counters of the previous vgpud in this process; counters that it did not have start at 0."""
        for name, value in counters.items():
            if name == "xids":
                self.xids = {int(device): xid for device, xid in value.items()}
            elif name in self.__slots__:
                setattr(self, name, Counter(value) if name == "refusals" else value)

    def snapshot(self) -> dict[str, Any]:
        """All counters as plain data."""
        numbers = {
            name: getattr(self, name) for name in self.__slots__ if name not in ("refusals", "started_at", "xids")
        }
        return {"uptime_s": round(time.monotonic() - self.started_at, 3)} | numbers | {"refusals": dict(self.refusals)}
