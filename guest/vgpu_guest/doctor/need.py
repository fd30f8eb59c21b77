"""What a program or library needs of CUDA, read from its files without running them.

These functions run in the program's place, so they return what JSON can hold.
"""

from __future__ import annotations

import mmap
import os
import re
from pathlib import Path
from typing import Any

from .. import device_code
from ..elf import ElfError, read_dynamic
from ..elf_symbol import read_called, read_symbols

FILES_CAP = 128
_SEARCHED_NBYTES = 512 << 20  # larger files are not searched for a static runtime: they link it dynamically

# Private tables of the driver that NVIDIA's runtimes request with cuGetExportTable: UUID (bytes in memory order), and
# whether a runtime fails without the table (observed with runtimes 11.8 to 13.5).
TABLES = {
    "6bd5fb6c5bf4e74a8987d93912fd9df9": True,
    "a094798c2e742e7493f20800200c0a66": True,
    "42d85a8123f6cb478298f6e78a3aecdc": True,
    "c693336e1121df11a8c368f355d89593": True,
    "d4082055bde6704b8d34ba123c66e1f2": True,
    "263e88607cd2614392f6bbd5006dfa7e": False,
    "21318c60971432488ca641ff7324c8f2": False,
    "1734dc26800d47458726c0f1e7dd8bca": False,
    "6e163fbeb958444d835ce182aff1991e": False,
    "f8cff95121468b4eb9e2fb469e7c0dd9": False,
    "69a28e9f24498b47b030c5da330ea4e9": False,
}
_LIBRARY_OF = (
    (re.compile(r"cuda[A-Z_]|__cuda"), "libcudart"),
    (re.compile(r"cu[A-Z]"), "libcuda"),
    (re.compile(r"nvml[A-Z]"), "libnvidia-ml"),
)
_PACKAGES = tuple(
    f"lib/python3*/site-packages/{library}"
    for library in (
        "torch/lib/libtorch_cuda.so",
        "llama_cpp/lib/libggml-cuda.so",
        "ctransformers/lib/cuda/*.so",
        "bitsandbytes/libbitsandbytes_cuda*.so",
        "cupy_backends/cuda/libs/*.so",
        "xformers/*.so",
        "vllm/*.so",
    )
)
_RUNTIME = re.compile(r"libcudart\.so\.(\d+)")
_RUNTIME_FUNCTION = re.compile(r"cuda[A-Z]")
_DRIVER_NAME = b"libcuda.so.1\0"
_COMPILER = re.compile(rb"Build cuda_(\d{1,2})\.(\d{1,2})\.")


def python_packages(program: str) -> list[str]:
    """Files with CUDA code in an interpreter's packages, which its ELF file does not name; none for other programs."""
    if not re.match(r"python[\d.]*$", os.path.basename(program)):
        return []
    prefix = Path(program).parent.parent
    return [str(file) for pattern in _PACKAGES for file in sorted(prefix.glob(pattern))][:FILES_CAP]


def read_all(files: list[str], compute_capability: list[int], machine_code: bool) -> list[dict[str, Any]]:
    """One entry for each file that uses CUDA, and always one for the first file."""
    found = []
    for index, file in enumerate(files[:FILES_CAP]):
        entry = _read(file, (compute_capability[0], compute_capability[1]), machine_code)
        if (
            index == 0
            or entry["imports"]
            or entry["code"]["containers"]
            or entry["static_runtime"]
            or entry["opens_driver"]
        ):
            found.append(entry)
    return found


def _read(file: str, compute_capability: tuple[int, int], machine_code: bool) -> dict[str, Any]:
    path = Path(file)
    entry: dict[str, Any] = {
        "file": file,
        "imports": {},
        "runtime": 0,
        "static_runtime": "",
        "static_calls": None,  # None: unknown, or there is no static runtime
        "opens_driver": False,
        "tables": [],
    }
    try:
        code = device_code.read(path, compute_capability, machine_code)
        entry["code"] = {**vars(code), "kinds": dict(code.kinds)}
        wanted = read_symbols(path).wanted
        needed = read_dynamic(path).needed
    except (ElfError, OSError, ValueError) as error:
        entry.setdefault("code", {**vars(device_code.DeviceCode()), "kinds": {}})
        entry["error"] = str(error)
        return entry
    for name in wanted:
        library = next((stem for pattern, stem in _LIBRARY_OF if pattern.match(name)), None)
        if library is not None:
            entry["imports"].setdefault(library, []).append(name)
    entry["runtime"] = max((int(match[1]) for match in map(_RUNTIME.match, needed) if match), default=0)
    if not os.path.basename(file).startswith("libcudart.so"):
        entry |= _marks(path)
    return entry


def _marks(path: Path) -> dict[str, Any]:
    """For a file with a static runtime: its release, the runtime functions called, and the private tables whose UUIDs
    are in the file. For other files: whether the file contains libcuda's name, perhaps to open it."""
    with path.open("rb") as file:
        nbytes = os.fstat(file.fileno()).st_size
        if not 64 <= nbytes <= _SEARCHED_NBYTES:
            return {}
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data.find(b"cudaErrorCudartUnloading\0") < 0:
                return {"opens_driver": data.find(_DRIVER_NAME) >= 0}
            built = _COMPILER.search(data)
            release = f"{int(built[1])}.{int(built[2])}" if built else "of unknown release"
            tables = [uuid for uuid in TABLES if data.find(bytes.fromhex(uuid)) >= 0]
    called = read_called(path, _RUNTIME_FUNCTION)
    return {
        "static_runtime": release,
        "static_calls": None if called is None else sorted(called),
        "tables": tables,
    }
