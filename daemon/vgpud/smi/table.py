"""The default table, with nvidia-smi's column widths, which scripts rely on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .device import mib
from .field import compute_mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .device import Device, Process, System

_INNER = 89  # characters between the outer bars
_COLUMNS = (41, 24, 22)


def _rule(fill: str = "-", widths: Sequence[int] = (_INNER,)) -> str:
    return "+" + "+".join(fill * width for width in widths) + "+"


def _line(*cells: str) -> str:
    widths = _COLUMNS if len(cells) == len(_COLUMNS) else (_INNER,)
    return "|" + "|".join(cell[:width].ljust(width) for cell, width in zip(cells, widths, strict=True)) + "|"


def _switch(value: int | None) -> str:
    return "N/A" if value is None else ("On" if value else "Off")


def _number(value: int | None, unit: str) -> str:
    return "N/A" if value is None else f"{value}{unit}"


def _watts(milliwatts: int | None) -> str:
    return "N/A" if milliwatts is None else f"{milliwatts // 1000}W"


def _device(device: Device) -> list[str]:
    fan, temperature, state = device.ask("FanSpeed"), device.ask("Temperature", 0), device.ask("PerformanceState")
    power = f"{_watts(device.ask('PowerUsage')):>16} / {_watts(device.ask('EnforcedPowerLimit')):>5}"
    used, total = mib(device.memory("used")), mib(device.memory("total"))
    mig = device.item("MigMode", 0)
    name = (device.name or "N/A")[:27]
    errors = device.ask("TotalEccErrors", 1, 0)
    level = "N/A" if state is None else f"P{state}"
    return [
        _line(
            f" {device.index:>3}  {name:<27}{_switch(device.ask('PersistenceMode')):>6}",
            f"   {device.bus_id or 'N/A'} {_switch(device.ask('DisplayActive')):>3}",
            f" {'N/A' if errors is None else errors:>20}",
        ),
        _line(
            f" {_number(fan, '%'):>3} {_number(temperature, 'C'):>5}  {level:>4}{power}",
            f"{_number(used, 'MiB'):>11} / {_number(total, 'MiB'):>9} ",
            f" {_number(device.utilization('gpu'), '%'):>7} {compute_mode(device.ask('ComputeMode')) or 'N/A':>12}",
        ),
        _line("", "", f" {'N/A' if mig is None else ('Enabled' if mig else 'Disabled'):>20}"),
        _rule("-", _COLUMNS),
    ]


def _process(device: Device, process: Process) -> str:
    used = _number(process.memory_mib, "MiB")
    name = process.name or "[Not Found]"
    if len(name) > 36:
        name = "..." + name[-33:]
    return _line(f" {device.index:>4}   N/A  N/A {process.pid:>15}   {process.kind:>4}   {name:<36}{used:>10} ")


def format_smi_table(system: System, devices: Sequence[Device]) -> str:
    """The whole table, as a terminal shows it."""
    release, cuda = system.driver_version or "N/A", system.cuda_version or "N/A"
    lines = [
        time.strftime("%a %b %d %H:%M:%S %Y") + " " * 7,
        _rule(),
        _line(f" {f'VGPU-SMI {release}':<34}{f'Driver Version: {release}':<31}CUDA Version: {cuda}"),
        _rule("-", _COLUMNS),
        _line(
            " GPU  Name                 Persistence-M ",
            " Bus-Id          Disp.A ",
            " Volatile Uncorr. ECC ",
        ),
        _line(" Fan  Temp   Perf          Pwr:Usage/Cap ", "           Memory-Usage ", " GPU-Util  Compute M. "),
        _line("", "", "               MIG M. "),
        "|" + "+".join("=" * width for width in _COLUMNS) + "|",
    ]
    for device in devices:
        lines += _device(device)
    running = [_process(device, process) for device in devices for process in device.processes() or []]
    lines += [
        "",
        _rule(),
        _line(" Processes:"),
        _line("  GPU   GI   CI              PID   Type   Process name                        GPU Memory "),
        _line("        ID   ID                                                               Usage      "),
        "|" + "=" * _INNER + "|",
        *(running or [_line("  No running processes found")]),
        _rule(),
    ]
    return "\n".join(lines)
