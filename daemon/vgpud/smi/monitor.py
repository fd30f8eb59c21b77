"""`vgpu smi dmon` and `pmon`: one line for each device, or process, and round."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .device import MIB_NBYTES, mib
from .field import GPU

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .device import Device, System

PROCESS_HEADER = (
    "# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command \n"
    "# Idx           #    C/G      %      %      %      %      %      %    name "
)
# By the letters of -s: title, unit and value of each column.
_METRICS: dict[str, tuple[tuple[str, str, Callable[[Device], Any]], ...]] = {
    "p": (
        ("pwr", "W", lambda d: _whole(d.ask("PowerUsage"), 1000)),
        ("gtemp", "C", lambda d: d.ask("Temperature", 0)),
        ("mtemp", "C", lambda d: None),
    ),
    "u": (
        ("sm", "%", lambda d: d.utilization("gpu")),
        ("mem", "%", lambda d: d.utilization("memory")),
        ("enc", "%", lambda d: d.item("EncoderUtilization", 0)),
        ("dec", "%", lambda d: d.item("DecoderUtilization", 0)),
        ("jpg", "%", lambda d: d.item("JpgUtilization", 0)),
        ("ofa", "%", lambda d: d.item("OfaUtilization", 0)),
    ),
    "c": (
        ("mclk", "MHz", lambda d: GPU["clocks.current.memory"].value(d)),
        ("pclk", "MHz", lambda d: GPU["clocks.current.graphics"].value(d)),
    ),
    "m": (
        ("fb", "MB", lambda d: mib(d.memory("used"))),
        ("bar1", "MB", lambda d: _bar1_used(d)),
        ("ccpm", "MB", lambda d: None),
    ),
    "t": (
        ("rxpci", "MB/s", lambda d: _whole(d.ask("PcieThroughput", 1), 1024)),
        ("txpci", "MB/s", lambda d: _whole(d.ask("PcieThroughput", 0), 1024)),
    ),
}
DEFAULT_METRICS = "puc"


def _whole(value: int | None, divisor: int) -> int | None:
    return None if value is None else value // divisor


def _bar1_used(device: Device) -> int | None:
    info = device.ask("BAR1MemoryInfo")
    return None if info is None else int(info.bar1Used) // MIB_NBYTES


def check_metrics(letters: str) -> None:
    """Raise ValueError, which names an unknown letter of -s."""
    if unknown := [letter for letter in letters if letter not in _METRICS]:
        raise ValueError(f"{unknown[0]!r}: there are {', '.join(_METRICS)}")


def device_header(letters: str) -> str:
    """The two header lines of dmon."""
    columns = [column for letter in letters for column in _METRICS[letter]]
    titles = "".join(f" {title:>6}" for title, _unit, _value in columns)
    return f"# gpu{titles} \n# Idx{''.join(f' {unit:>6}' for _title, unit, _value in columns)} "


def device_lines(letters: str, devices: Sequence[Device]) -> str:
    """One round of dmon; a dash where a device does not report a value."""
    columns = [column for letter in letters for column in _METRICS[letter]]
    return "\n".join(
        f"{device.index:>5}" + "".join(f" {_cell(value(device)):>6}" for _title, _unit, value in columns) + " "
        for device in devices
    )


def _cell(value: Any) -> str:
    return "-" if value is None else str(value)


def process_lines(_system: System, devices: Sequence[Device]) -> str:
    """One round of pmon: a dash where there is no process, and for utilisation, which is not measured per process."""
    lines = []
    for device in devices:
        for process in device.processes() or []:
            name = os.path.basename((process.name or "-").split(" ")[0])
            lines.append(_process_line(device.index, str(process.pid), process.kind, name))
        if not lines or not lines[-1].startswith(f"{device.index:>5}"):
            lines.append(_process_line(device.index, "-", "-", "-"))
    return "\n".join(lines)


def _process_line(index: int, pid: str, kind: str, name: str) -> str:
    return f"{index:>5} {pid:>10} {kind:>5}" + f" {'-':>6}" * 6 + f"    {name:<15}"
