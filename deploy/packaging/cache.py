"""Where downloads are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """`$XDG_CACHE_HOME/vgpu-packaging/NAME`, created if it does not exist."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "vgpu-packaging" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
