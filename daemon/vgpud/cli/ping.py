"""`vgpu ping`: round trips to vgpud."""

from __future__ import annotations

import json
import statistics
import time
from typing import TYPE_CHECKING

import click

from .client import Client
from .fail import reported
from .option import endpoint_option, token_option

if TYPE_CHECKING:
    from ..endpoint import Endpoint


@click.command()
@click.option("-c", "--count", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="Round trips.")
@click.option(
    "-i", "--interval", "interval_s", type=click.FloatRange(0, 60), default=0.0, help="Pause between them, seconds."
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable, in microseconds.")
@endpoint_option
@token_option
def ping(count: int, interval_s: float, as_json: bool, endpoint: Endpoint, token: str | None) -> None:
    """Measure the round trip of the control channel. (A CUDA call goes to the worker instead and is faster.)"""
    times_us = []
    with reported(endpoint), Client(endpoint, token=token) as client:
        client.hello()
        for _ in range(count):
            times_us.append(client.ping() * 1e6)
            time.sleep(interval_s)
    times_us.sort()
    p50, p99 = statistics.median(times_us), times_us[min(count - 1, int(count * 0.99))]
    if as_json:
        figures = {"min": times_us[0], "p50": p50, "p99": p99, "max": times_us[-1]}
        click.echo(json.dumps({"endpoint": str(endpoint), "count": count, "us": figures}))
        return
    click.echo(
        f"{count} round trips to {endpoint}: min {times_us[0]:.0f} us, p50 {p50:.0f} us, p99 {p99:.0f} us, "
        f"max {times_us[-1]:.0f} us"
    )
