"""`vgpu top`: the sessions of a running vgpud, again and again, the busiest first."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from .admin_client import AdminClient, admin_command
from .session_table import format_sessions

_CLEAR = "\033[H\033[J"


@click.command()
@click.option("-d", "--delay", type=click.FloatRange(0.1, 3600), default=2.0, show_default=True, help="Seconds.")
@click.option("-n", "--iterations", type=click.IntRange(1), help="Then end.  [default: go on]")
@admin_command
def top(client: AdminClient, delay: float, iterations: int | None) -> None:
    """Show the sessions of the local vgpud, the busiest worker first, until ^C (for root and its owner)."""
    before: dict[int, tuple[float, float]] = {}
    shown = 0
    while True:
        sessions, now = client.get("sessions")["sessions"], time.monotonic()
        cpu = {each["session"]: _percent(each, now, before.get(each["session"])) for each in sessions}
        before = {each["session"]: (now, each["worker_cpu_s"] or 0.0) for each in sessions}
        sessions.sort(key=lambda each: -cpu[each["session"]])
        used = [sum(each["memory_nbytes"] or []) for each in sessions]
        line = f"{time.strftime('%H:%M:%S')}  {len(sessions)} sessions, {sum(used) >> 20} MiB of device memory"
        click.echo(f"{_CLEAR if sys.stdout.isatty() else ''}{line}\n\n{format_sessions(sessions, cpu)}")
        shown += 1
        if shown == iterations:
            return
        time.sleep(delay)


def _percent(session: dict[str, Any], now: float, before: tuple[float, float] | None) -> float:
    """Percent of one processor since the last update; in the first update, since the session began."""
    if session["worker_cpu_s"] is None:
        return 0.0
    since_s, used_s = (session["age_s"], 0.0) if before is None else (now - before[0], before[1])
    return float(100 * max(0.0, session["worker_cpu_s"] - used_s) / max(since_s, 1e-3))
