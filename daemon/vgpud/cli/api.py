"""`vgpu api`: the functions of the API, and how vgpu answers each."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from typing import Any

import click

from .fail import fail
from .status import ExitStatus
from .table import format_table


@click.command()
@click.option("--summary", is_flag=True, help="Only the counts.")
@click.option("--nvml", is_flag=True, help="The functions of NVML instead of the driver's.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable: each function and its answer.")
def api(summary: bool, nvml: bool, as_json: bool) -> None:
    """Print the coverage table, generated from the description of the API."""
    rows = _nvml_rows() if nvml else _driver_rows()
    if as_json:
        click.echo(json.dumps({row[0]: row[1] for row in rows}, indent=2))
        return
    if not summary:
        header = ["FUNCTION", "ANSWER", "WHY NONE"] if nvml else ["FUNCTION", "TRAVELS", "MODULE"]
        click.echo(format_table(header, rows))
    counts = Counter(row[1] for row in rows)
    click.echo(f"{len(rows)} functions: " + ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))


def _driver_rows() -> list[list[str]]:
    return [[entry.name, entry.travel, entry.module] for entry in _generated("api").ENTRIES]


def _nvml_rows() -> list[list[str]]:
    """Functions marked "none" return NOT_SUPPORTED; the answers of the others depend on the device."""
    described = _generated("nvml")
    return [[name, source, described.REASONS.get(name, "")] for name, source in described.SOURCES.items()]


def _generated(name: str) -> Any:
    try:
        return importlib.import_module(f"vgpud._gen.{name}")
    except ImportError:
        fail("this build has no coverage table (run `make gen`)", ExitStatus.SOFTWARE)
