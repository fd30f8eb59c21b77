"""Whether a program's PyTorch is simulated by vgpu-torch, which replaces its kernels on simulated devices."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .place import ask

if TYPE_CHECKING:
    from .subject import Subject


def is_active(subject: Subject, sites: list[str]) -> bool:
    """Whether vgpu-torch is in one of the interpreter's package folders and not disabled by VGPU_TORCH=0."""
    return subject.environment.get("VGPU_TORCH") != "0" and bool(ask(subject.place, _is_there, sites))


def _is_there(sites: list[str]) -> bool:
    return any(os.path.isfile(os.path.join(site, "vgpu_torch/__init__.py")) for site in sites)
