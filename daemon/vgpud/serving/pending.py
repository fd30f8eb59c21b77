"""Connections that have not been welcomed yet: limits their number, and chooses which one is dropped for another
client's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from vgpud.config_tables import LimitsConfig


class PendingConnections:
    """Pending connections by client, oldest first. A client that sends hello at once is never the oldest for long."""

    def __init__(self) -> None:
        self._tasks: dict[str, dict[asyncio.Task[None], None]] = {}
        self.count = 0

    def make_room(self, key: str, limits: LimitsConfig) -> bool:
        """Whether another connection of the client `key` may wait.

        When all places are taken, the client that holds most of them loses its oldest connection, if it holds more than
        `key` does: so no number of silent connections of others keeps a client out.
        """
        own = len(self._tasks.get(key, ()))
        if own >= limits.pending_per_client:
            return False
        if self.count < limits.pending_connections:
            return True
        greatest = max(self._tasks, key=lambda each: len(self._tasks[each]))
        if len(self._tasks[greatest]) <= own:
            return False
        oldest = next(iter(self._tasks[greatest]))
        self.remove(greatest, oldest)
        oldest.cancel()
        return True

    def add(self, key: str, task: asyncio.Task[None]) -> None:
        """A connection of that client waits, served by `task`."""
        self._tasks.setdefault(key, {})[task] = None
        self.count += 1

    def remove(self, key: str, task: asyncio.Task[None]) -> None:
        """Remove a connection that no longer waits. Removing it again does nothing."""
        tasks = self._tasks.get(key, {})
        if task in tasks:
            del tasks[task]
            self.count -= 1
            if not tasks:
                del self._tasks[key]
