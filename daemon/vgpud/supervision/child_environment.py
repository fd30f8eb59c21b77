"""The environment of processes that vgpu starts: workers, and `vgpu run`'s own vgpud."""

from __future__ import annotations

import os
from pathlib import Path

from vgpu_guest.libraries import LIBRARIES

_PACKAGE = Path(__file__).resolve().parent.parent
_KEPT = {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "XDG_CACHE_HOME", "CACHE_DIRECTORY", "TMPDIR"}
_SECRET = {"VGPU_TOKEN"}


def child_environment() -> dict[str, str]:
    """Only the variables that a child needs; vgpud's package is first on PYTHONPATH, and the guest library on no
    path.
    """
    environment = {
        key: value
        for key, value in os.environ.items()
        if key in _KEPT or (key.startswith("VGPU_") and key not in _SECRET)
    }
    parts = [part for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    # Inside `vgpu run` the guest library is on that path: a worker that loaded it as the real driver would call vgpud.
    if foreign := [part for part in parts if Path(part).resolve() != LIBRARIES]:
        environment["LD_LIBRARY_PATH"] = ":".join(foreign)
    inherited = [str(Path(part).resolve()) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    environment["PYTHONPATH"] = os.pathsep.join([str(_PACKAGE.parent), *inherited])
    return environment
