"""Whether a profiler in the program would load vgpu's libcupti: NVIDIA's shows no kernels with vgpu's driver."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vgpu_guest.cupti import FOLDER, FOLDERS, find_profilers

from .names import DRIVER

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .subject import Subject


def check(subject: Subject, diagnosis: Diagnosis) -> None:
    """Adds a warning, not a finding, because it concerns only profilers, and only if libcuda is proven to work."""
    library = diagnosis.libraries[DRIVER]["resolved"]
    if not diagnosis.proven or subject.program is None or library is None:
        return
    preloaded = subject.environment.get("LD_PRELOAD", "")
    folder = os.path.join(os.path.dirname(os.path.realpath(str(library))), FOLDER)
    for soname, theirs in find_profilers(str(subject.program), subject.environment).items():
        part = f"/{FOLDER}/{FOLDERS[soname]}/{soname}"  # path of vgpu's libcupti in any vgpu folder
        ours = f"{folder}/{FOLDERS[soname]}/{soname}"
        if theirs is None or str(theirs).endswith(part) or part in preloaded or not os.path.exists(ours):
            continue
        diagnosis.warnings.append(
            f"profilers would bind {theirs}, which shows no kernel here: with LD_PRELOAD={ours}, or under `vgpu run`, "
            "they bind vgpu's"
        )
