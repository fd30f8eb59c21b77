"""-q: everything about each device, as text (one `key : value` a line, sections indented) or as XML (-x)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from .detail_field import DETAIL
from .field import DEPRECATED, GPU
from .section import DISPLAYS, LAST_SECTIONS, PROCESSES, SECTIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from .device import Device, System
    from .section import Entry, Section

_KEY_WIDTH = 55
_NO_INSTANCE = (("GPU instance ID", "gpu_instance_id"), ("Compute instance ID", "compute_instance_id"))


def _text(device: Device, entry: Entry) -> str:
    field = GPU.get(entry.field) or DETAIL[entry.field]
    value = field.value(device)
    if value == DEPRECATED:
        return DEPRECATED.strip("[]")
    if value is not None and entry.field.startswith("pcie.link.width"):
        return f"{value}x"
    return "N/A" if value is None else f"{value} {field.unit}".rstrip()


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of equal headings at the start of both."""
    return next(
        (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
    )


def _entry(depth: int, key: str, value: str) -> str:
    indent = "    " * depth
    return f"{indent}{key:<{_KEY_WIDTH - len(indent)}}: {value}"


def _device(device: Device, displays: Collection[str]) -> Iterator[str]:
    yield f"GPU {device.bus_id or device.index}"
    yield from _sections(device, SECTIONS, displays)
    if not displays or PROCESSES in displays:
        yield from _processes(device)
    yield from _sections(device, LAST_SECTIONS, displays)


def _sections(device: Device, sections: Sequence[Section], displays: Collection[str]) -> Iterator[str]:
    for section in sections:
        if (displays and section.display not in displays) or not any(entry.key for entry in section.entries):
            continue
        if section.title:
            yield f"    {section.title}"
        shown: list[str] = []
        for entry in (entry for entry in section.entries if entry.key):
            *headings, key = entry.key.split("/")
            depth = 2 if section.title else 1
            for at in range(_common(shown, headings), len(headings)):
                yield "    " * (depth + at) + headings[at]
            shown = [*headings, key]  # a key is the heading of the keys nested below it
            yield _entry(depth + len(headings), key, _text(device, entry))


def _processes(device: Device) -> Iterator[str]:
    processes = device.processes()
    if not processes:
        yield _entry(1, "Processes", "N/A" if processes is None else "None")
        return
    yield "    Processes"
    for process in processes:
        for key, _element_name in _NO_INSTANCE:
            yield _entry(2, key, "N/A")
        yield _entry(2, "Process ID", str(process.pid))
        yield _entry(3, "Type", process.kind)
        yield _entry(3, "Name", process.name or "N/A")
        used = process.memory_mib
        yield _entry(3, "Used GPU Memory", "N/A" if used is None else f"{used} MiB")


def format_detail(system: System, devices: Sequence[Device], displays: Collection[str] = ()) -> str:
    """The whole report, or the sections of each device that the words of -d select."""
    lines = [
        "",
        f"{'VGPU SMI LOG':=^40}",
        "",
        _entry(0, "Timestamp", _now()),
        _entry(0, "Driver Version", system.driver_version or "N/A"),
        _entry(0, "CUDA Version", system.cuda_version or "N/A"),
        "",
        _entry(0, "Attached GPUs", str(len(system.devices()))),
    ]
    for device in devices:
        lines += [*_device(device, displays), ""]
    return "\n".join(lines).rstrip("\n")


def select_displays(text: str) -> list[str]:
    """The words of -d. Raises ValueError, which names an unknown word."""
    words = [word.strip().upper() for word in text.split(",")]
    if unknown := [word for word in words if word not in DISPLAYS]:
        raise ValueError(f"{unknown[0]!r}: there are {', '.join(DISPLAYS)}")
    return words


def format_xml(system: System, devices: Sequence[Device], displays: Collection[str] = ()) -> str:
    """The same report as XML, in the elements of `nvidia-smi -q -x`."""
    lines = ['<?xml version="1.0" ?>', '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">', "<nvidia_smi_log>"]
    lines += [
        _element(1, "timestamp", _now()),
        _element(1, "driver_version", system.driver_version or "N/A"),
        _element(1, "cuda_version", system.cuda_version or "N/A"),
        _element(1, "attached_gpus", str(len(system.devices()))),
    ]
    for device in devices:
        lines += [f"\t<gpu id={quoteattr(device.bus_id or str(device.index))}>", *_xml_device(device, displays)]
        lines.append("\t</gpu>")
    return "\n".join([*lines, "</nvidia_smi_log>"])


def _xml_device(device: Device, displays: Collection[str]) -> Iterator[str]:
    yield from _xml_sections(device, SECTIONS, displays)
    if not displays or PROCESSES in displays:
        yield from _xml_processes(device)
    yield from _xml_sections(device, LAST_SECTIONS, displays)


def _xml_sections(device: Device, sections: Sequence[Section], displays: Collection[str]) -> Iterator[str]:
    for section in sections:
        if not displays or section.display in displays:
            yield from _xml_section(device, section)


def _xml_processes(device: Device) -> Iterator[str]:
    yield "\t\t<processes>"
    for process in device.processes() or ():
        used = process.memory_mib
        yield "\t\t\t<process_info>"
        for _key, name in _NO_INSTANCE:
            yield _element(4, name, "N/A")
        yield _element(4, "pid", str(process.pid))
        yield _element(4, "type", process.kind)
        yield _element(4, "process_name", process.name or "N/A")
        yield _element(4, "used_memory", "N/A" if used is None else f"{used} MiB")
        yield "\t\t\t</process_info>"
    yield "\t\t</processes>"
    yield "\t\t<accounted_processes>"
    yield "\t\t</accounted_processes>"


def _xml_section(device: Device, section: Section) -> Iterator[str]:
    opened: list[str] = []
    for entry in section.entries:
        *parents, name = f"{section.element}/{entry.element}".lstrip("/").split("/")
        yield from _turn(opened, parents)
        opened = parents
        text = _text(device, entry)
        yield _element(2 + len(parents), name, text.removeprefix("0x") if section.element == "pci" else text)
    yield from _turn(opened, [])


def _turn(opened: Sequence[str], parents: Sequence[str]) -> Iterator[str]:
    """Close those of the `opened` elements that are not in `parents`, and open the new ones."""
    kept = _common(opened, parents)
    for depth in reversed(range(kept, len(opened))):
        yield "\t" * (2 + depth) + f"</{opened[depth]}>"
    for depth in range(kept, len(parents)):
        yield "\t" * (2 + depth) + f"<{parents[depth]}>"


def _element(depth: int, name: str, text: str) -> str:
    """An element of printable text: a process may have any name, and XML cannot hold most control codes."""
    printable = "".join(char if char.isprintable() else "?" for char in text)
    return "\t" * depth + f"<{name}>{escape(printable)}</{name}>"


def _now() -> str:
    return time.strftime("%a %b %d %H:%M:%S %Y")
