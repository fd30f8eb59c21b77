"""Faults in the environment itself: hidden devices, a unit that was changed after its process started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import notice_conf
from . import mend
from .place import ask

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .subject import Subject

_NAMES = ("LD_LIBRARY_PATH", "LD_PRELOAD", "VGPU_ENDPOINT", "VGPU_GUEST_CONF", "CUDA_VISIBLE_DEVICES")
_SECRET = ("VGPU_TOKEN",)


def check(subject: Subject, diagnosis: Diagnosis) -> None:
    """Adds devices-hidden and restart-needed, and reports the relevant variables as evidence."""
    environment = subject.environment
    diagnosis.evidence += [f"{name}={environment[name]}" for name in _NAMES if name in environment]
    diagnosis.evidence += [f"{name} is set" for name in _SECRET if name in environment]
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and is_empty(visible):
        notice: str = "" if visible else ask(subject.place.as_administrator(), notice_conf.message)
        if notice:
            diagnosis.add("devices-blocked", f"GPU access: {notice}")
        else:
            command = mend.set_variable(subject, "CUDA_VISIBLE_DEVICES", "")
            diagnosis.add("devices-hidden", f"CUDA_VISIBLE_DEVICES={visible!r} shows no device", command)
    unit = subject.unit
    if unit is None:
        return
    diagnosis.evidence += [f"unit file: {file}" for file in unit.files]
    for file in unit.missing_files:
        diagnosis.warnings.append(f"{unit.name} reads {file}, which is not there: it will not start")
    if subject.process is None:
        diagnosis.evidence.append(f"{unit.name} is not running; this is what its files say")
        return
    changed = [n for n in (*_NAMES, *_SECRET) if n in unit.environment and unit.environment[n] != environment.get(n)]
    if changed:
        text = f"process {subject.process.pid} was started before {unit.name} got its {', '.join(changed)}"
        diagnosis.add("restart-needed", text, mend.restart(unit.name))


def is_empty(visible: str) -> bool:
    """Whether the list selects no device: it is empty, or its first entry is no device."""
    first = visible.split(",")[0].strip()
    return not (first.isdigit() or first.startswith(("GPU-", "MIG-")))
