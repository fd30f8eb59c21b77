"""`vgpu smi`: the devices and what runs on them, as nvidia-smi shows them, for people and for scripts."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..endpoint import UnixEndpoint, default_endpoint
from ..smi import field, monitor
from ..smi.detail import format_detail, format_xml, select_displays
from ..smi.device import Device, System
from ..smi.library import NvmlUnavailableError, open_nvml
from ..smi.table import format_smi_table
from ..smi.topology import format_topology
from .fail import fail
from .option import EndpointType
from .status import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..endpoint import Endpoint

_GUEST_CONFIGURATION = "/etc/vgpu/guest.conf"
_MONITOR_PERIOD_S = 1.0
_APP_KEYS = ("pid", "process_name", "used_gpu_memory")  # a process's fields in its device's JSON


@dataclass
class _View:
    """A report: text before the first round, the text of each round, and the seconds between two rounds."""

    render: Callable[[System, Sequence[Device]], str]
    first: str = ""
    period_s: float | None = None


@click.command()
@click.option("-L", "--list-gpus", "as_list", is_flag=True, help="One line per device.")
@click.option("-q", "--query", "in_detail", is_flag=True, help="Everything about each device.")
@click.option("-x", "--xml-format", "as_xml", is_flag=True, help="With -q: as XML.")
@click.option("-d", "--display", "display", metavar="WORDS", help="With -q: only these parts. dmon, pmon: seconds.")
@click.option("-i", "--id", "wanted", metavar="IDS", help="Only these devices: indices, UUIDs or PCI addresses.")
@click.option("--query-gpu", metavar="FIELDS", help="Fields of each device as CSV; see --help-query-gpu.")
@click.option("--query-compute-apps", metavar="FIELDS", help="Fields of each process as CSV.")
@click.option("--format", "csv_format", metavar="csv[,noheader][,nounits]", help="For the queries.")
@click.option("--json", "as_json", is_flag=True, help="All fields of each device and its processes, as JSON.")
@click.option("-l", "--loop", "loop_s", type=click.FloatRange(min=0.1), help="Again every so many seconds.")
@click.option("-lms", "--loop-ms", "loop_ms", type=click.IntRange(min=100), help="Again every so many milliseconds.")
@click.option("-c", "--count", type=click.IntRange(min=1), help="End after so many rounds (dmon, pmon).")
@click.option("-s", "--select", "metrics", metavar="LETTERS", help="dmon: of p, u, c, m, t; puc if not given.")
@click.option("-m", "--matrix", is_flag=True, help="topo: the matrix.")
@click.option("-f", "--filename", type=click.Path(dir_okay=False, writable=True), help="Write there instead.")
@click.option("--help-query-gpu", is_flag=True, help="List the fields of a device and exit.")
@click.option("--help-query-compute-apps", is_flag=True, help="List the fields of a process and exit.")
@click.option("--endpoint", type=EndpointType(), help="Where vgpud listens (default: what a program would find).")
@click.argument("mode", type=click.Choice(["dmon", "pmon", "topo"]), required=False)
def smi(
    as_list: bool,
    in_detail: bool,
    as_xml: bool,
    display: str | None,
    wanted: str | None,
    query_gpu: str | None,
    query_compute_apps: str | None,
    csv_format: str | None,
    as_json: bool,
    loop_s: float | None,
    loop_ms: int | None,
    count: int | None,
    metrics: str | None,
    matrix: bool,
    filename: str | None,
    help_query_gpu: bool,
    help_query_compute_apps: bool,
    endpoint: Endpoint | None,
    mode: str | None,
) -> None:
    """Show the devices of this guest, and the processes on them.

    N/A: the device does not report it; a simulated one has no sensors.
    """
    if help_query_gpu or help_query_compute_apps:
        click.echo("\n".join(field.GPU if help_query_gpu else field.APPS))
        return
    if sum(map(bool, (as_list, in_detail, query_gpu, query_compute_apps, as_json, mode))) > 1:
        raise click.UsageError("-L, -q, --query-gpu, --query-compute-apps, --json and modes exclude each other")
    for given, option, fitting in (
        (as_xml, "-x", in_detail),
        (display is not None, "-d", in_detail or mode in ("dmon", "pmon")),
        (metrics is not None, "-s", mode == "dmon"),
        (matrix, "-m", mode == "topo"),
    ):
        if given and not fitting:
            raise click.UsageError(f"{option} does not go with what else is given")
    if mode == "topo" and not matrix:
        raise click.UsageError("topo needs -m")
    try:
        if query_gpu or query_compute_apps:
            view = _query(query_gpu, query_compute_apps, csv_format)
        elif csv_format is not None:
            raise click.UsageError("--format goes with --query-gpu or --query-compute-apps")
        elif mode is not None:
            view = _mode(mode, metrics, display)
        elif in_detail:
            displays = [] if display is None else select_displays(display)
            render = format_xml if as_xml else format_detail
            view = _View(lambda system, devices: render(system, devices, displays))
        elif as_list:
            view = _View(lambda _system, devices: "\n".join(_list_line(d) for d in devices))
        else:
            view = _View(_as_json if as_json else format_smi_table)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if loop_s is not None or loop_ms is not None:
        view.period_s = loop_s if loop_ms is None else loop_ms / 1000
    _find_vgpud(endpoint)
    _show(view, wanted, count, filename)


def _query(gpu: str | None, apps: str | None, csv_format: str | None) -> _View:
    header, units = _csv_format(csv_format)
    if gpu is not None:
        columns = _select(gpu, field.GPU, field.GPU_ALIASES)
        first = field.csv_header(columns) if header else ""
        return _View(
            lambda _system, devices: "\n".join(field.csv_line(columns, d, units=units) for d in devices), first
        )
    rows = _select(apps or "", field.APPS, field.APP_ALIASES)
    return _View(
        lambda _system, devices: "\n".join(
            field.csv_line(rows, row, units=units) for row in field.rows_of_apps(devices)
        ),
        field.csv_header(rows) if header else "",
    )


def _mode(mode: str, metrics: str | None, period: str | None) -> _View:
    if mode == "topo":
        return _View(format_topology)
    period_s = _MONITOR_PERIOD_S if period is None else float(period)
    if period_s < _MONITOR_PERIOD_S:
        raise ValueError(f"-d {period}: at least {_MONITOR_PERIOD_S:.0f} second")
    if mode == "pmon":
        return _View(monitor.process_lines, monitor.PROCESS_HEADER, period_s)
    letters = metrics or monitor.DEFAULT_METRICS
    monitor.check_metrics(letters)
    return _View(
        lambda _system, devices: monitor.device_lines(letters, devices), monitor.device_header(letters), period_s
    )


def _show(view: _View, wanted: str | None, count: int | None, filename: str | None) -> None:
    try:
        pynvml = open_nvml()
    except NvmlUnavailableError as error:
        fail(str(error), ExitStatus.UNAVAILABLE)
    system = System(pynvml)
    devices = _chosen(system, wanted)
    try:
        with click.open_file(filename or "-", "w") as file:
            if view.first:
                click.echo(view.first, file)
            for _ in _rounds(view.period_s, count):
                if text := view.render(system, devices):
                    click.echo(text, file)
    except pynvml.NVMLError_GpuIsLost:
        fail("vgpud is gone", ExitStatus.UNAVAILABLE)
    finally:
        pynvml.nvmlShutdown()


def _rounds(loop_s: float | None, count: int | None) -> Iterator[None]:
    """Once, or every `loop_s` seconds until `count` rounds are over or the user interrupts."""
    done = 0
    while True:
        yield
        done += 1
        if loop_s is None or done == count:
            return
        try:
            time.sleep(loop_s)
        except KeyboardInterrupt:
            return


def _csv_format(text: str | None) -> tuple[bool, bool]:
    """(header, units) of --format."""
    words = [word.strip() for word in (text or "").split(",")]
    if words[0] != "csv" or not set(words[1:]) <= {"noheader", "nounits"}:
        raise click.UsageError("--format=csv[,noheader][,nounits] is needed")
    return "noheader" not in words, "nounits" not in words


def _select(
    text: str, known: Mapping[str, field.Field[field.Row]], aliases: Mapping[str, str]
) -> dict[str, field.Field[field.Row]]:
    try:
        return field.select(text, known, aliases)
    except field.UnknownFieldError as error:
        raise click.UsageError(f'Field "{error}" is not a valid field to query.') from error


def _find_vgpud(endpoint: Endpoint | None) -> None:
    """Let the library find vgpud as in any program, but on the host try this user's own vgpud first."""
    if endpoint is not None:
        os.environ["VGPU_ENDPOINT"] = str(endpoint)
        return
    own = default_endpoint()
    configured = os.environ.get("VGPU_ENDPOINT") or Path(_GUEST_CONFIGURATION).exists()
    if not configured and isinstance(own, UnixEndpoint) and Path(own.path).exists():
        os.environ["VGPU_ENDPOINT"] = str(own)


def _chosen(system: System, wanted: str | None) -> list[Device]:
    devices = system.devices()
    if wanted is None:
        return devices
    chosen = []
    for text in wanted.split(","):
        key = text.strip().lower()
        found = [d for d in devices if key in _names(d)]
        if not found:
            fail(f"No devices were found: {text.strip()!r}", ExitStatus.FAILURE)
        chosen += found
    return chosen


def _names(device: Device) -> set[str]:
    """The names that `-i` accepts for a device."""
    bus_id = (device.bus_id or "").lower()
    return {str(device.index), (device.uuid or "").lower(), bus_id, bus_id[4:]}


def _list_line(device: Device) -> str:
    return f"GPU {device.index}: {device.name or 'N/A'} (UUID: {device.uuid or 'N/A'})"


def _as_json(system: System, devices: Sequence[Device]) -> str:
    """Every field by its name; null: the device does not report it."""

    def told(device: Device) -> dict[str, object]:
        values = {name: one.value(device) for name, one in field.GPU.items() if name != "timestamp"}
        apps = [{name: one.value(row) for name, one in field.APPS.items()} for row in field.rows_of_apps([device])]
        return values | {"processes": [{key: app[key] for key in _APP_KEYS} for app in apps]}

    document = {
        "driver_version": system.driver_version,
        "cuda_version": system.cuda_version,
        "gpus": [told(device) for device in devices],
    }
    return json.dumps(document, indent=2)
