"""-q: everything about each device, as text (one `key : value` a line, sections indented) or as XML (-x).

What is shown stands in section.py and in _PROCESS; _report walks through it, and a writer gives each part its form.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol
from xml.sax.saxutils import escape, quoteattr

from .detail_field import DETAIL
from .field import DEPRECATED, GPU
from .section import DISPLAYS, LAST_SECTIONS, PROCESSES, SECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from .device import Device, Process, System
    from .section import Entry, Section

_KEY_WIDTH = 55

_SYSTEM: tuple[tuple[str, str, Callable[[System], str]], ...] = (
    ("Timestamp", "timestamp", lambda system: time.strftime("%a %b %d %H:%M:%S %Y")),
    ("Driver Version", "driver_version", lambda system: system.driver_version or "N/A"),
    ("CUDA Version", "cuda_version", lambda system: system.cuda_version or "N/A"),
    ("Attached GPUs", "attached_gpus", lambda system: str(len(system.devices()))),
)
# Depth in the text, key, element, value.
_PROCESS: tuple[tuple[int, str, str, Callable[[Process], str]], ...] = (
    (2, "GPU instance ID", "gpu_instance_id", lambda process: "N/A"),
    (2, "Compute instance ID", "compute_instance_id", lambda process: "N/A"),
    (2, "Process ID", "pid", lambda process: str(process.pid)),
    (3, "Type", "type", lambda process: process.kind),
    (3, "Name", "process_name", lambda process: process.name or "N/A"),
    (3, "Used GPU Memory", "used_memory", lambda process: _mib(process.memory_mib)),
)


def _mib(value: int | None) -> str:
    return "N/A" if value is None else f"{value} MiB"


class _Writer(Protocol):
    """Gives each part of a device's report its lines."""

    def section(self, device: Device, section: Section) -> Iterator[str]: ...

    def processes(self, processes: Sequence[Process] | None) -> Iterator[str]: ...


def _report(device: Device, displays: Collection[str], writer: _Writer) -> Iterator[str]:
    """The device's sections, or those that the words of -d select."""

    def chosen(sections: Sequence[Section]) -> Iterator[str]:
        for section in sections:
            if not displays or section.display in displays:
                yield from writer.section(device, section)

    yield from chosen(SECTIONS)
    if not displays or PROCESSES in displays:
        yield from writer.processes(device.processes())
    yield from chosen(LAST_SECTIONS)


def _value(device: Device, entry: Entry) -> str:
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


def select_displays(text: str) -> list[str]:
    """The words of -d. Raises ValueError, which names an unknown word."""
    words = [word.strip().upper() for word in text.split(",")]
    if unknown := [word for word in words if word not in DISPLAYS]:
        raise ValueError(f"{unknown[0]!r}: there are {', '.join(DISPLAYS)}")
    return words


# Text


def _line(depth: int, key: str, value: str) -> str:
    indent = "    " * depth
    return f"{indent}{key:<{_KEY_WIDTH - len(indent)}}: {value}"


class _Text:
    def section(self, device: Device, section: Section) -> Iterator[str]:
        entries = [entry for entry in section.entries if entry.key]
        if entries and section.title:
            yield f"    {section.title}"
        depth = 2 if section.title else 1
        shown: list[str] = []
        for entry in entries:
            *headings, key = entry.key.split("/")
            for at in range(_common(shown, headings), len(headings)):
                yield "    " * (depth + at) + headings[at]
            shown = [*headings, key]  # a key is the heading of the keys nested below it
            yield _line(depth + len(headings), key, _value(device, entry))

    def processes(self, processes: Sequence[Process] | None) -> Iterator[str]:
        if not processes:
            yield _line(1, "Processes", "N/A" if processes is None else "None")
            return
        yield "    Processes"
        for process in processes:
            for depth, key, _element_name, value in _PROCESS:
                yield _line(depth, key, value(process))


def format_detail(system: System, devices: Sequence[Device], displays: Collection[str] = ()) -> str:
    """The whole report, or the sections of each device that the words of -d select."""
    *versions, attached = [_line(0, key, value(system)) for key, _name, value in _SYSTEM]
    lines = ["", f"{'VGPU SMI LOG':=^40}", "", *versions, "", attached]
    for device in devices:
        lines += [f"GPU {device.bus_id or device.index}", *_report(device, displays, _Text()), ""]
    return "\n".join(lines).rstrip("\n")


# XML


def _element(depth: int, name: str, text: str) -> str:
    """An element of printable text: a process may have any name, and XML cannot hold most control codes."""
    printable = "".join(char if char.isprintable() else "?" for char in text)
    return "\t" * depth + f"<{name}>{escape(printable)}</{name}>"


def _turn(opened: Sequence[str], parents: Sequence[str]) -> Iterator[str]:
    """Close those of the `opened` elements that are not in `parents`, and open the new ones."""
    kept = _common(opened, parents)
    for depth in reversed(range(kept, len(opened))):
        yield "\t" * (2 + depth) + f"</{opened[depth]}>"
    for depth in range(kept, len(parents)):
        yield "\t" * (2 + depth) + f"<{parents[depth]}>"


class _Xml:
    def section(self, device: Device, section: Section) -> Iterator[str]:
        opened: list[str] = []
        for entry in section.entries:
            *parents, name = f"{section.element}/{entry.element}".lstrip("/").split("/")
            yield from _turn(opened, parents)
            opened = parents
            text = _value(device, entry)
            yield _element(2 + len(parents), name, text.removeprefix("0x") if section.element == "pci" else text)
        yield from _turn(opened, [])

    def processes(self, processes: Sequence[Process] | None) -> Iterator[str]:
        yield "\t\t<processes>"
        for process in processes or ():
            yield "\t\t\t<process_info>"
            for _depth, _key, name, value in _PROCESS:
                yield _element(4, name, value(process))
            yield "\t\t\t</process_info>"
        yield "\t\t</processes>"
        yield "\t\t<accounted_processes>"
        yield "\t\t</accounted_processes>"


def format_xml(system: System, devices: Sequence[Device], displays: Collection[str] = ()) -> str:
    """The same report as XML, in the elements of `nvidia-smi -q -x`."""
    lines = ['<?xml version="1.0" ?>', '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">', "<nvidia_smi_log>"]
    lines += [_element(1, name, value(system)) for _key, name, value in _SYSTEM]
    for device in devices:
        lines += [f"\t<gpu id={quoteattr(device.bus_id or str(device.index))}>", *_report(device, displays, _Xml())]
        lines.append("\t</gpu>")
    return "\n".join([*lines, "</nvidia_smi_log>"])
