"""`vgpu smi`: the devices and what runs on them, as nvidia-smi shows them, for people and for scripts."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..endpoint import UnixEndpoint, default_endpoint
from ..smi import field
from ..smi.detail import format_detail
from ..smi.device import Device, System
from ..smi.library import NvmlUnavailableError, open_nvml
from ..smi.table import format_smi_table
from .fail import fail
from .option import EndpointType
from .status import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..endpoint import Endpoint

_GUEST_CONFIGURATION = "/etc/vgpu/guest.conf"
_PMON_PERIOD_S = 1.0
_PMON_HEADER = (
    "# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command \n"
    "# Idx           #    C/G      %      %      %      %      %      %    name "
)


@click.command()
@click.option("-L", "--list-gpus", "as_list", is_flag=True, help="One line per device.")
@click.option("-q", "--query", "in_detail", is_flag=True, help="Everything about each device.")
@click.option("-i", "--id", "wanted", metavar="IDS", help="Only these devices: indices, UUIDs or PCI addresses.")
@click.option("--query-gpu", metavar="FIELDS", help="Fields of each device as CSV; see --help-query-gpu.")
@click.option("--query-compute-apps", metavar="FIELDS", help="Fields of each process as CSV.")
@click.option("--format", "csv_format", metavar="csv[,noheader][,nounits]", help="For the queries.")
@click.option("-l", "--loop", "loop_s", type=click.FloatRange(min=0.1), help="Again every so many seconds.")
@click.option("-c", "--count", type=click.IntRange(min=1), help="End after so many rounds (pmon).")
@click.option("--help-query-gpu", is_flag=True, help="List the fields and exit.")
@click.option("--endpoint", type=EndpointType(), help="Where vgpud listens (default: what a program would find).")
@click.argument("mode", type=click.Choice(["pmon"]), required=False)
def smi(
    as_list: bool,
    in_detail: bool,
    wanted: str | None,
    query_gpu: str | None,
    query_compute_apps: str | None,
    csv_format: str | None,
    loop_s: float | None,
    count: int | None,
    help_query_gpu: bool,
    endpoint: Endpoint | None,
    mode: str | None,
) -> None:
    """Show the devices of this guest, and the processes on them.

    What a device does not tell is N/A: a simulated one has no sensors.
    """
    if help_query_gpu:
        click.echo("\n".join(field.GPU))
        return
    if sum(map(bool, (as_list, in_detail, query_gpu, query_compute_apps, mode))) > 1:
        raise click.UsageError("-L, -q, --query-gpu, --query-compute-apps and pmon exclude each other")
    header, units = _csv_format(csv_format, bool(query_gpu or query_compute_apps))
    print_once: Callable[[System, Sequence[Device]], str]
    first = ""
    if query_gpu:
        columns = _select(query_gpu, field.GPU, field.GPU_ALIASES)
        first = field.csv_header(columns) if header else ""
        print_once = lambda _system, devices: "\n".join(field.csv_line(columns, d, units=units) for d in devices)  # noqa: E731
    elif query_compute_apps:
        apps = _select(query_compute_apps, field.APPS, field.APP_ALIASES)
        first = field.csv_header(apps) if header else ""
        print_once = lambda _system, devices: "\n".join(  # noqa: E731
            field.csv_line(apps, row, units=units) for row in field.rows_of_apps(devices)
        )
    elif mode == "pmon":
        first, print_once, loop_s = _PMON_HEADER, _pmon, loop_s or _PMON_PERIOD_S
    elif as_list:
        print_once = lambda _system, devices: "\n".join(_list_line(d) for d in devices)  # noqa: E731
    else:
        print_once = format_detail if in_detail else format_smi_table
    _find_vgpud(endpoint)
    try:
        pynvml = open_nvml()
    except NvmlUnavailableError as error:
        fail(str(error), ExitStatus.UNAVAILABLE)
    system = System(pynvml)
    devices = _chosen(system, wanted)
    try:
        if first:
            click.echo(first)
        for _ in _rounds(loop_s, count):
            text = print_once(system, devices)
            if text:
                click.echo(text)
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


def _csv_format(text: str | None, needed: bool) -> tuple[bool, bool]:
    """(header, units) of --format."""
    if not needed:
        if text is not None:
            raise click.UsageError("--format goes with --query-gpu or --query-compute-apps")
        return True, True
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
    """Leave finding vgpud to the library, as in any program; but on its host, know this user's own."""
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
    """What `-i` may call a device."""
    bus_id = (device.bus_id or "").lower()
    return {str(device.index), (device.uuid or "").lower(), bus_id, bus_id[4:]}


def _list_line(device: Device) -> str:
    return f"GPU {device.index}: {device.name or 'N/A'} (UUID: {device.uuid or 'N/A'})"


def _pmon(_system: System, devices: Sequence[Device]) -> str:
    """One line per process; a dash where there is none, and for utilisation, which nobody measures per process."""
    lines = []
    for device in devices:
        for process in device.processes() or []:
            name = os.path.basename((process.name or "-").split(" ")[0])
            lines.append(_pmon_line(device.index, str(process.pid), process.kind, name))
        if not lines or not lines[-1].startswith(f"{device.index:>5}"):
            lines.append(_pmon_line(device.index, "-", "-", "-"))
    return "\n".join(lines)


def _pmon_line(index: int, pid: str, kind: str, name: str) -> str:
    return f"{index:>5} {pid:>11} {kind:>6}" + f" {'-':>6}" * 6 + f"    {name:<16}"
