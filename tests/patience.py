"""How long tests wait for what must happen, and how they measure what must be quick.

A test waits for an event. Only a hang exceeds `PATIENCE_S`, on any machine and at any load, so that a miss is a fault.
"""

from collections.abc import Callable

PATIENCE_S = 200


def quickest_s(measured_s: Callable[[], float], enough_s: float) -> float:
    """The shortest of up to ten measurements; stops at one of at most `enough_s`. A busy machine only adds time."""
    shortest_s = measured_s()
    for _ in range(9):
        if shortest_s <= enough_s:
            break
        shortest_s = min(shortest_s, measured_s())
    return shortest_s
