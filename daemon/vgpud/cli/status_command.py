"""`vgpu status`: what a running vgpud is doing."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import click

from ..endpoint import runtime_directory
from .fail import fail
from .status import ExitStatus
from .table import format_table

_TIMEOUT_S = 5.0
_DOCUMENT_NBYTES = 64 * 1024 * 1024


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The whole document.")
@click.option(
    "--admin",
    type=click.Path(path_type=Path),
    default=lambda: str(runtime_directory() / "admin.sock"),
    help="The daemon's admin socket.",
)
def status(as_json: bool, admin: Path) -> None:
    """Show sessions and counters of the local vgpud (for root and its owner)."""
    try:
        document = json.loads(_read(admin))
    except (OSError, ValueError) as error:
        fail(f"{admin}: {getattr(error, 'strerror', None) or 'no status came'}", ExitStatus.UNAVAILABLE)
    click.echo(json.dumps(document, indent=2) if as_json else _format(document))


def _read(path: Path) -> bytes:
    chunks = bytearray()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(_TIMEOUT_S)
        sock.connect(str(path))
        while (data := sock.recv(65536)) and len(chunks) <= _DOCUMENT_NBYTES:
            chunks += data
    return bytes(chunks)


def _format(document: dict[str, Any]) -> str:
    metrics = document["metrics"]
    refusals = metrics.pop("refusals")
    counters = [[name, value] for name, value in metrics.items()]
    counters += [[f"refused {code}", count] for code, count in sorted(refusals.items())]
    parts = [
        f"{document['backend']}: {', '.join(document['devices'])}",
        f"listening on {', '.join(document['listen'])}",
        *([] if (left_s := document["drain_left_s"]) is None else [f"stopping: sessions may go on for {left_s} s"]),
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
