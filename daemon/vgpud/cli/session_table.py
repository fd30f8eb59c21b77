"""Sessions as rows of a table."""

from __future__ import annotations

from typing import Any

from .table import format_nbytes, format_table

_HEADER = ["SESSION", "TENANT", "SHARE", "PID", "COMM", "WORKER", "MEMORY", "LIMIT", "CPU_S", "AGE_S"]


def format_sessions(sessions: list[dict[str, Any]], cpu: dict[int, float] | None = None) -> str:
    """The table. `cpu`: percent of a processor by session number, shown in place of processor seconds."""
    header = [*_HEADER[:8], "CPU%" if cpu is not None else "CPU_S", "AGE_S"]
    rows = []
    for each in sessions:
        memory, limit = each["memory_nbytes"], each["memory_limit_nbytes"]
        used = each["worker_cpu_s"] if cpu is None else cpu.get(each["session"])
        rows.append(
            [
                each["session"],
                each["tenant"],
                each["share"] or "-",
                each["pid"] or "-",
                each["comm"],
                each["worker_pid"] or "-",
                "-" if memory is None else format_nbytes(sum(memory)),
                "-" if limit is None else format_nbytes(limit),
                "-" if used is None else f"{used:.1f}",
                round(each["age_s"]),
            ]
        )
    return format_table(header, rows)
