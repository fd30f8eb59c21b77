"""`vgpu status`: what a running vgpud is doing."""

from __future__ import annotations

import json
from typing import Any

import click

from .admin_client import AdminClient, admin_command
from .table import format_table


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The whole document.")
@admin_command
def status(client: AdminClient, as_json: bool) -> None:
    """Show sessions and counters of the local vgpud (for root and its owner)."""
    document = client.get("status")
    click.echo(json.dumps(document, indent=2) if as_json else _format(document))


def _format(document: dict[str, Any]) -> str:
    metrics = document["metrics"]
    refusals = metrics.pop("refusals")
    counters = [[name, value] for name, value in metrics.items()]
    counters += [[f"refused {code}", count] for code, count in sorted(refusals.items())]
    parts = [
        f"vgpud {document['version']}, {document['backend']}: {', '.join(document['devices'])}",
        f"listening on {', '.join(document['listen'])}",
        *([] if (left_s := document["drain_left_s"]) is None else [f"stopping: sessions may go on for {left_s} s"]),
        *([f"workers lack: {', '.join(missing)}"] if (missing := document["isolation_missing"]) else []),
        *([f"this kernel lacks: {', '.join(scopes)}"] if (scopes := document["landlock_missing"]) else []),
        "",
        format_table(["COUNTER", "VALUE"], counters),
    ]
    if document["sessions"]:
        rows = [
            [s["session"], s["peer"], s["pid"] or "-", s["comm"], s["worker_pid"] or "-", s["age_s"]]
            for s in document["sessions"]
        ]
        parts += ["", format_table(["SESSION", "PEER", "PID", "COMM", "WORKER", "AGE_S"], rows)]
    return "\n".join(parts)
