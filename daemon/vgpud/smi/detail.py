"""-q: everything about each device, one `key : value` a line, sections indented."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .field import GPU

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .device import Device, System

_KEY_WIDTH = 46

# Section and key of each field, in the order they are shown; "" is the device itself.
_SECTIONS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "",
        (
            ("Product Name", "name"),
            ("Display Active", "display_active"),
            ("Persistence Mode", "persistence_mode"),
            ("Serial Number", "serial"),
            ("GPU UUID", "uuid"),
            ("VBIOS Version", "vbios_version"),
            ("Compute Capability", "compute_cap"),
            ("Fan Speed", "fan.speed"),
            ("Performance State", "pstate"),
            ("Compute Mode", "compute_mode"),
        ),
    ),
    ("MIG Mode", (("Current", "mig.mode.current"), ("Pending", "mig.mode.pending"))),
    (
        "PCI",
        (
            ("Domain", "pci.domain"),
            ("Bus", "pci.bus"),
            ("Device", "pci.device"),
            ("Device Id", "pci.device_id"),
            ("Bus Id", "pci.bus_id"),
            ("Sub System Id", "pci.sub_device_id"),
            ("Link Generation Max", "pcie.link.gen.max"),
            ("Link Generation Current", "pcie.link.gen.current"),
            ("Link Width Max", "pcie.link.width.max"),
            ("Link Width Current", "pcie.link.width.current"),
        ),
    ),
    (
        "FB Memory Usage",
        (
            ("Total", "memory.total"),
            ("Reserved", "memory.reserved"),
            ("Used", "memory.used"),
            ("Free", "memory.free"),
        ),
    ),
    (
        "Utilization",
        (
            ("GPU", "utilization.gpu"),
            ("Memory", "utilization.memory"),
            ("Encoder", "utilization.encoder"),
            ("Decoder", "utilization.decoder"),
        ),
    ),
    ("ECC Mode", (("Current", "ecc.mode.current"), ("Pending", "ecc.mode.pending"))),
    (
        "ECC Errors, volatile",
        (
            ("Corrected", "ecc.errors.corrected.volatile.total"),
            ("Uncorrected", "ecc.errors.uncorrected.volatile.total"),
        ),
    ),
    ("Temperature", (("GPU Current Temp", "temperature.gpu"), ("Memory Current Temp", "temperature.memory"))),
    (
        "GPU Power Readings",
        (
            ("Power Draw", "power.draw"),
            ("Current Power Limit", "power.limit"),
            ("Enforced Power Limit", "enforced.power.limit"),
            ("Default Power Limit", "power.default_limit"),
            ("Min Power Limit", "power.min_limit"),
            ("Max Power Limit", "power.max_limit"),
        ),
    ),
    (
        "Clocks",
        (
            ("Graphics", "clocks.current.graphics"),
            ("SM", "clocks.current.sm"),
            ("Memory", "clocks.current.memory"),
            ("Video", "clocks.current.video"),
        ),
    ),
    (
        "Max Clocks",
        (("Graphics", "clocks.max.graphics"), ("SM", "clocks.max.sm"), ("Memory", "clocks.max.memory")),
    ),
)


def _entry(depth: int, key: str, value: str) -> str:
    indent = "    " * depth
    return f"{indent}{key:<{_KEY_WIDTH - len(indent)}}: {value}"


def _device(device: Device) -> Iterator[str]:
    yield f"GPU {device.bus_id or device.index}"
    for section, entries in _SECTIONS:
        if section:
            yield f"    {section}"
        for key, name in entries:
            field = GPU[name]
            value = field.value(device)
            text = "N/A" if value is None else f"{value} {field.unit}".rstrip()
            yield _entry(2 if section else 1, key, text)
    processes = device.processes()
    if not processes:
        yield _entry(1, "Processes", "N/A" if processes is None else "None")
        return
    yield "    Processes"
    for process in processes:
        yield _entry(2, "Process ID", str(process.pid))
        yield _entry(3, "Type", process.kind)
        yield _entry(3, "Name", process.name or "N/A")
        used = process.memory_mib
        yield _entry(3, "Used GPU Memory", "N/A" if used is None else f"{used} MiB")


def format_detail(system: System, devices: Sequence[Device]) -> str:
    """The whole log."""
    lines = [
        "",
        f"{'VGPU SMI LOG':=^42}",
        "",
        _entry(0, "Timestamp", time.strftime("%a %b %d %H:%M:%S %Y")),
        _entry(0, "Driver Version", system.driver_version or "N/A"),
        _entry(0, "CUDA Version", system.cuda_version or "N/A"),
        "",
        _entry(0, "Attached GPUs", str(len(system.devices()))),
    ]
    for device in devices:
        lines += [*_device(device), ""]
    return "\n".join(lines).rstrip("\n")
