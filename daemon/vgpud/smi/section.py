"""What -q shows: each section of a device with its keys, in text, in XML, and by the words of -d."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One value: its key in the text, its element in the XML, its field of --query-gpu. Keys and elements that lie
    deeper have their headings before a slash."""

    key: str
    element: str
    field: str


@dataclass(frozen=True, slots=True)
class Section:
    """Entries under one title; an empty title is the device itself. `display`: the word of -d that chooses it."""

    title: str
    element: str
    display: str
    entries: tuple[Entry, ...]


def _section(title: str, element: str, display: str, *rows: tuple[str, str, str]) -> Section:
    return Section(title, element, display, tuple(Entry(*row) for row in rows))


_GENERATION, _PCIE_GEN = "GPU Link Info/PCIe Generation", "pci_gpu_link_info/pcie_gen"
_WIDTH, _LINK_WIDTHS = "GPU Link Info/Link Width", "pci_gpu_link_info/link_widths"
SECTIONS = (
    _section(
        *("", "", ""),
        ("Product Name", "product_name", "name"),
        ("Display Active", "display_active", "display_active"),
        ("Persistence Mode", "persistence_mode", "persistence_mode"),
        ("Serial Number", "serial", "serial"),
        ("GPU UUID", "uuid", "uuid"),
        ("VBIOS Version", "vbios_version", "vbios_version"),
        ("Compute Capability", "compute_capability", "compute_cap"),
        ("Fan Speed", "fan_speed", "fan.speed"),
    ),
    _section("", "", "PERFORMANCE", ("Performance State", "performance_state", "pstate")),
    _section("", "", "COMPUTE", ("Compute Mode", "compute_mode", "compute_mode")),
    _section(
        *("MIG Mode", "mig_mode", ""),
        ("Current", "current_mig", "mig.mode.current"),
        ("Pending", "pending_mig", "mig.mode.pending"),
    ),
    _section(
        *("PCI", "pci", ""),
        ("Bus", "pci_bus", "pci.bus"),
        ("Device", "pci_device", "pci.device"),
        ("Domain", "pci_domain", "pci.domain"),
        ("Device Id", "pci_device_id", "pci.device_id"),
        ("Bus Id", "pci_bus_id", "pci.bus_id"),
        ("Sub System Id", "pci_sub_system_id", "pci.sub_device_id"),
        (f"{_GENERATION}/Max", f"{_PCIE_GEN}/max_link_gen", "pcie.link.gen.max"),
        (f"{_GENERATION}/Current", f"{_PCIE_GEN}/current_link_gen", "pcie.link.gen.current"),
        (f"{_WIDTH}/Max", f"{_LINK_WIDTHS}/max_link_width", "pcie.link.width.max"),
        (f"{_WIDTH}/Current", f"{_LINK_WIDTHS}/current_link_width", "pcie.link.width.current"),
    ),
    _section(
        *("FB Memory Usage", "fb_memory_usage", "MEMORY"),
        ("Total", "total", "memory.total"),
        ("Reserved", "reserved", "memory.reserved"),
        ("Used", "used", "memory.used"),
        ("Free", "free", "memory.free"),
    ),
    _section(
        *("Utilization", "utilization", "UTILIZATION"),
        ("GPU", "gpu_util", "utilization.gpu"),
        ("Memory", "memory_util", "utilization.memory"),
        ("Encoder", "encoder_util", "utilization.encoder"),
        ("Decoder", "decoder_util", "utilization.decoder"),
    ),
    _section(
        *("ECC Mode", "ecc_mode", "ECC"),
        ("Current", "current_ecc", "ecc.mode.current"),
        ("Pending", "pending_ecc", "ecc.mode.pending"),
    ),
    _section(
        *("ECC Errors, volatile", "ecc_errors", "ECC"),
        ("Corrected", "corrected", "ecc.errors.corrected.volatile.total"),
        ("Uncorrected", "uncorrected", "ecc.errors.uncorrected.volatile.total"),
    ),
    _section(
        *("Temperature", "temperature", "TEMPERATURE"),
        ("GPU Current Temp", "gpu_temp", "temperature.gpu"),
        ("Memory Current Temp", "memory_temp", "temperature.memory"),
    ),
    _section(
        *("GPU Power Readings", "gpu_power_readings", "POWER"),
        ("Power Draw", "power_draw", "power.draw"),
        ("Current Power Limit", "current_power_limit", "power.limit"),
        ("Enforced Power Limit", "enforced_power_limit", "enforced.power.limit"),
        ("Default Power Limit", "default_power_limit", "power.default_limit"),
        ("Min Power Limit", "min_power_limit", "power.min_limit"),
        ("Max Power Limit", "max_power_limit", "power.max_limit"),
    ),
    _section(
        *("Clocks", "clocks", "CLOCK"),
        ("Graphics", "graphics_clock", "clocks.current.graphics"),
        ("SM", "sm_clock", "clocks.current.sm"),
        ("Memory", "mem_clock", "clocks.current.memory"),
        ("Video", "video_clock", "clocks.current.video"),
    ),
    _section(
        *("Max Clocks", "max_clocks", "CLOCK"),
        ("Graphics", "graphics_clock", "clocks.max.graphics"),
        ("SM", "sm_clock", "clocks.max.sm"),
        ("Memory", "mem_clock", "clocks.max.memory"),
    ),
)
PROCESSES = "PIDS"  # the word of -d for the processes
DISPLAYS = tuple(sorted({section.display for section in SECTIONS if section.display} | {PROCESSES}))
