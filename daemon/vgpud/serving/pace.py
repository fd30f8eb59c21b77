"""Limits the time of vgpud's event loop that one client's questions take, whatever its number of sessions."""

from __future__ import annotations

import time
from collections import OrderedDict

_KEYS = 4096


class Pace:
    """For each client, the time until which its questions have used up its `share` of the loop."""

    def __init__(self, share: float, burst_s: float) -> None:
        """`burst_s`: the loop's time that a client may take at once after a pause."""
        self._share = share
        self._burst_s = burst_s / share
        self._used_until: OrderedDict[str, float] = OrderedDict()

    def delay_s(self, key: str, cost_s: float) -> float:
        """Charge a question that took `cost_s` of the loop; how long the client has to wait before its next one."""
        now = time.monotonic()
        until = max(self._used_until.pop(key, 0.0), now - self._burst_s) + cost_s / self._share
        self._used_until[key] = until
        while len(self._used_until) > _KEYS:
            self._used_until.popitem(last=False)
        return max(0.0, until - now)
