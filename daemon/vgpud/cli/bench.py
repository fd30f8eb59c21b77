"""`vgpu bench`: the ratio of remoted to native time, measured in one run."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import click

from .. import __version__
from ..bench.measure import CALLS, SETS, Report, compare, first_kernel
from ..bench.render import as_document, as_markdown, as_svg
from ..bench.side import CHANNELS, BenchError, Host, Side, hosts, native, remote
from ..endpoint import EndpointError, parse_endpoint
from .client import Client
from .fail import fail, reported
from .status import ExitStatus

_WARM = "warm"  # name of the side whose worker has a context before its client connects


@click.command()
@click.option("--native-only", is_flag=True, help="On the machine's own driver alone.")
@click.option("--remoted-only", is_flag=True, help="Through vgpud alone.")
@click.option("--simulator", "gpus", metavar="PROFILES", help='On simulated devices, as in "h100": remoted only.')
@click.option(
    "--channel", "channels", multiple=True, type=click.Choice(CHANNELS), help="A channel of its own vgpud (all three)."
)
@click.option(
    "--endpoint",
    "endpoints",
    multiple=True,
    metavar="URL",
    help="Also (alone, without --channel) a vgpud that is there.",
)
@click.option("--work", "sets", multiple=True, type=click.Choice([*SETS, "first"]), help="What to run (all that can).")
@click.option(
    "--rounds", type=click.IntRange(1, 1000), default=11, show_default=True, help="Windows of each, per side."
)
@click.option("--libcuda", default="libcuda.so.1", show_default=True, help="The machine's own driver.")
@click.option("--python", default=sys.executable, help="The interpreter that has torch, cupy, jax.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Write table, JSON and SVG into this folder."
)
@click.option("--name", default="bench", show_default=True, help="Of the files in that folder.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def bench(
    native_only: bool,
    remoted_only: bool,
    gpus: str | None,
    channels: tuple[str, ...],
    endpoints: tuple[str, ...],
    sets: tuple[str, ...],
    rounds: int,
    libcuda: str,
    python: str,
    out: Path | None,
    name: str,
    quiet: bool,
) -> None:
    """Measure the same work natively and through vgpud.

    A process on each side stays alive and windows of work alternate between them. The table gives medians, and ratios
    to native pair by pair with their quartiles. What cannot run here (no torch, no card) is named at its end; when
    nothing could run, the exit code is 1.
    """
    if native_only and (remoted_only or gpus or channels or endpoints):
        fail("--native-only leaves no room for --remoted-only, --simulator, --channel and --endpoint", ExitStatus.USAGE)
    if not CALLS.exists():
        fail(f"{CALLS} is missing: this build has no bench program (run `make build`)", ExitStatus.SOFTWARE)
    for url in endpoints:
        try:
            endpoint = parse_endpoint(url)
        except EndpointError as error:
            fail(str(error), ExitStatus.USAGE)
        with reported(endpoint), Client(endpoint, token=os.environ.get("VGPU_TOKEN")) as client:
            client.hello()

    def say(line: str) -> None:
        if not quiet:
            click.echo(line, err=True)

    own = channels or (() if endpoints or native_only else CHANNELS)
    wanted = sets or (*SETS, "first")
    sides = [] if remoted_only or gpus else [native(libcuda)]
    backend = "cuda" if gpus is None else "simulator"
    with ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgpu-bench-")))
            running = [stack.enter_context(host) for host in hosts(own, folder, backend, gpus or "h100", libcuda)]
            there = [remote(url, url, os.environ.get("VGPU_TOKEN")) for url in endpoints]
            everything = [*sides, *(host.side for host in running), *there]
            report = Report([side.name for side in everything])
            for each in (each for each in wanted if each != "first"):
                _join(report, compare(each, everything, rounds, python=python, say=say))
            if "first" in wanted:
                places: list[tuple[Side, Host | None]] = [(side, None) for side in sides]
                places += [(host.side, host) for host in running]
                if own:
                    [host] = hosts(own[:1], folder, backend, gpus or "h100", libcuda, warm_workers=1)
                    stack.enter_context(host)
                    places.append((Side(f"{own[0]}, {_WARM}", host.side.environment), host))
                places += [(side, None) for side in there]
                _join(report, first_kernel(places, rounds, say=say))
        except BenchError as error:
            fail(str(error), ExitStatus.UNAVAILABLE)
    machine = _machine(gpus, libcuda, rounds)
    table = as_markdown(report, machine)
    click.echo(table, nl=False)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.md").write_text(table)
        (out / f"{name}.json").write_text(json.dumps(as_document(report, machine), indent=1) + "\n")
        (out / f"{name}.svg").write_text(as_svg(report, f"vgpu bench, {machine['card']}, {machine['date']}"))
    if not report.rows:
        raise SystemExit(ExitStatus.FAILURE)


def _join(whole: Report, part: Report) -> None:
    whole.rows += part.rows
    whole.skipped += part.skipped
    whole.sides += [side for side in part.sides if side not in whole.sides]


def _machine(gpus: str | None, libcuda: str, rounds: int) -> dict[str, str]:
    """The conditions under which the figures were measured."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ""
    )
    driver = next(iter(_lines("/sys/module/nvidia/version")), "")
    information = next(iter(sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))), None)
    lines = [] if information is None else _lines(str(information))
    card = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("Model")), libcuda)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "vgpu": __version__,
        "card": f"simulated {gpus}" if gpus else card,
        **({"driver": driver} if driver and not gpus else {}),
        "CPU": f"{len(os.sched_getaffinity(0))} x {model or platform.machine()}",
        "load before": f"{os.getloadavg()[2]:.1f}",
        "rounds": str(rounds),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
