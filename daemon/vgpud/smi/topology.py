"""`vgpu smi topo -m`: how the devices are connected, as far as the host tells a guest."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .device import Device, System

# nvmlGpuTopologyLevel_t.
_LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_LEGEND = (
    ("X", "Self"),
    ("SYS", "Connection between the PCIe buses of two processor sockets"),
    ("NODE", "Connection between PCIe host bridges of one NUMA node"),
    ("PHB", "Connection through a PCIe host bridge"),
    ("PXB", "Connection through several PCIe switches"),
    ("PIX", "Connection through at most one PCIe switch"),
    ("N/A", "The host does not tell"),
)


def format_topology(_system: System, devices: Sequence[Device]) -> str:
    """The matrix, columns separated by tabs as nvidia-smi's are."""
    names = [f"GPU{device.index}" for device in devices]
    lines = ["\t" + "\t".join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for device in devices:
        cells = [" X " if other is device else _connection(device, other) for other in devices]
        lines.append("\t".join([f"GPU{device.index}", *cells, "N/A", "N/A", "", "N/A"]))  # two tabs, as in nvidia-smi
    return "\n".join([*lines, "", "Legend:", "", *(f"  {word:<4} = {text}" for word, text in _LEGEND)])


def _connection(one: Device, other: Device) -> str:
    level = one.common_ancestor(other)
    return "N/A" if level is None else _LEVELS.get(level, str(level))
