"""How much of vgpud's event loop the questions of one client may take, whatever number of sessions it has."""

from __future__ import annotations

import time
from collections import OrderedDict

_KEYS = 4096


class Pace:
    """By client, the time until which the loop is used up by what it has asked. Not more than `share` of the loop."""

    def __init__(self, share: float, burst_s: float) -> None:
        """`burst_s`: of the loop's time, which a client that was quiet may take at once."""
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
