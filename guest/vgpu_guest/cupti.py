"""Which libcupti will a program find? NVIDIA's cannot profile vgpu's devices: it asks the driver for tables that only
NVIDIA knows. PyTorch, JAX and TensorFlow packages contain it and find it by an RPATH, which precedes LD_LIBRARY_PATH;
a library of the same name that is already loaded precedes both. So vgpu's libcupti is preloaded in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cudart import find_libraries

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Below this folder, beside libcuda.so.1, each libcupti has its own folder.
FOLDER = "cupti"
FOLDERS = {"libcupti.so.12": "12", "libcupti.so.13": "13"}


def find_profilers(program: str, environment: Mapping[str, str], *, cached: bool = True) -> dict[str, Path | None]:
    """For each libcupti name the file of NVIDIA that `program` would find, or None. `cached`: search the loader's cache
    as well."""
    return find_libraries(program, environment, FOLDERS, cached=cached)
