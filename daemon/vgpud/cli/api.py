"""`vgpu api`: which driver functions there are and how each travels."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any

import click

from .fail import fail
from .status import ExitStatus
from .table import format_table


@click.command()
@click.option("--summary", is_flag=True, help="Only the counts.")
def api(summary: bool) -> None:
    """Print the coverage table, generated from the description of the API."""
    try:
        generated: Any = importlib.import_module("vgpud._gen.api")
    except ImportError:
        fail("this build has no coverage table (run `make gen`)", ExitStatus.SOFTWARE)
    entries = generated.ENTRIES
    if not summary:
        click.echo(format_table(["FUNCTION", "TRAVELS", "MODULE"], [[e.name, e.travel, e.module] for e in entries]))
    counts = Counter(entry.travel for entry in entries)
    click.echo(f"{len(entries)} functions: " + ", ".join(f"{n} {travel}" for travel, n in sorted(counts.items())))
