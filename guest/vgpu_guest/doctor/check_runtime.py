"""Whether the program's CUDA runtime reaches the vGPU: the probe opens it in the program's place and calls it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import probe
from .names import RUNTIMES
from .place import PlaceError

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .subject import Subject


def check(subject: Subject, diagnosis: Diagnosis) -> None:
    """Adds runtime-foreign if libcuda is proven to work but a runtime does not: one that the program needs, or, if the
    subject is any program, one that it would find and that is neither NVIDIA's nor vgpu's."""
    if not diagnosis.proven:
        return
    needed = diagnosis.listing.libraries if diagnosis.listing is not None else {}
    for name in RUNTIMES:
        entry = diagnosis.libraries[name]
        file = needed.get(name) or entry["resolved"]
        if file is None or (name not in needed and entry["kind"] in ("ours", "nvidia")):
            continue
        try:
            outcome = probe.ask(subject.place, subject.environment, "cudart", file)
        except (PlaceError, probe.NoProbeError) as error:
            diagnosis.warnings.append(f"{file} was not asked: {error}")
            continue
        diagnosis.probe[name] = vars(outcome)
        if outcome.result == 0 and outcome.count > 0:
            continue
        count = f", {outcome.count} devices" if outcome.result == 0 else ""
        answer = outcome.error or f"cudaGetDeviceCount = {outcome.result}{count}"
        text = f"{name} is {file} ({entry['words']}): {answer}, though cuInit = 0 beside it"
        if name in needed or subject.program is None:
            diagnosis.add("runtime-foreign", text, advice=_advice(file))
        else:
            diagnosis.warnings.append(text)


def _advice(file: str) -> str:
    if os.path.dirname(file).endswith(("/lib", "/lib64", "/x86_64-linux-gnu")):
        return f"remove {file} if nothing owns it (dpkg -S {file}), then: sudo ldconfig"
    return f"reinstall what {file} came with: NVIDIA's own runtime works on vgpu's driver"
