"""Which libcupti will a program find? NVIDIA's cannot profile vgpu's devices: it asks the driver for tables that only
NVIDIA documents. The packages of PyTorch, JAX and TensorFlow bring it and find it by an RPATH, which wins over
LD_LIBRARY_PATH; a library of the same name that is loaded already wins over both. So vgpu's is preloaded in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cudart import find_libraries

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Each in a folder of its own, below this one beside libcuda.so.1.
FOLDER = "cupti"
FOLDERS = {"libcupti.so.12": "12", "libcupti.so.13": "13"}


def find_profilers(program: str, environment: Mapping[str, str], *, cached: bool = True) -> dict[str, Path | None]:
    """NVIDIA's libcupti of each major that `program` would find; None where it would find none. `cached`: also by the
    loader's cache."""
    return find_libraries(program, environment, FOLDERS, cached=cached)
