"""vgx_limit.c over a driver that only counts (vgt_limit.c), for tests and the benchmark of its cost."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
from pathlib import Path

from vgpud.devices.ledger import Ledger

ROOT = Path(__file__).resolve().parents[3]
INCLUDES = [f"-I{ROOT / folder}" for folder in ("daemon/executor", "protocol/c", "build/gen")]
SOURCES = ("vgx_limit.c", "vgx_limit_driver.c", "vgx_limit_graph.c", "vgx_limit_pool.c", "vgx_charge.c")
CREATING = {"alloc", "pitch", "pool_alloc", "create", "array", "graph", "module_load"}
_numbers = itertools.count()


def build(folder: Path) -> Path:
    """The library; each Limited loads a copy, as a process has one session."""
    made = folder / "limit.so"
    command = [
        os.environ.get("CC", "cc"),
        "-std=gnu11",
        "-O2",
        "-shared",
        "-fPIC",
        "-pthread",
        *INCLUDES,
        "-o",
        str(made),
    ]
    sources = [str(ROOT / "daemon/executor" / name) for name in SOURCES]
    subprocess.run([*command, str(Path(__file__).with_name("vgt_limit.c")), *sources], check=True)
    return made


class Limited:
    """A session of the tenant uid:1, with a limit of one device."""

    def __init__(self, library: Path, folder: Path, limit_nbytes: int, has_pools: bool = True) -> None:
        own = folder / f"{next(_numbers)}.so"
        shutil.copy(library, own)
        self.library = ctypes.CDLL(str(own))
        self.ledger, self._limit_nbytes = Ledger(), limit_nbytes
        self.ledger.take("uid:1")
        self._words = (ctypes.c_uint64 * 1).from_buffer(self.ledger._memory)
        self.library.vgt_reserved.restype = ctypes.c_uint64
        self.library.vgt_begin(self._words, ctypes.c_uint64(limit_nbytes), has_pools)

    def __call__(self, name: str, *arguments: int, found: ctypes.c_uint64 | None = None) -> int:
        given: list[object] = [ctypes.c_uint64(argument) for argument in arguments]
        if name in CREATING:
            given.append(ctypes.byref(ctypes.c_uint64() if found is None else found))
        return int(getattr(self.library, f"vgt_{name}")(*given))

    def ok(self, name: str, *arguments: int) -> int:
        """A call that succeeds; returns what it has made."""
        found = ctypes.c_uint64()
        if name == "pool":
            number = ctypes.c_int()
            assert self.library.vgt_pool(ctypes.byref(number)) == 0
            return number.value
        assert self(name, *arguments, found=found) == 0
        return found.value

    def set(self, name: str, value: int) -> None:
        """Set a variable of the driver."""
        kind = ctypes.c_int if name in ("fails", "reuses", "busy", "silent", "holds") else ctypes.c_uint64
        kind.in_dll(self.library, f"vgt_{name}").value = value

    def write(self, row: int, nbytes: int) -> None:
        """Have another session use bytes of the device."""
        place = (1 + row) * 48 * 8
        self.ledger._memory[place : place + 8] = nbytes.to_bytes(8, "little")

    @property
    def used(self) -> int:
        """What counts."""
        return self.ledger.used(0, 0)

    @property
    def room(self) -> int:
        return self._limit_nbytes - self.ledger.used_by_tenant(0, "uid:1")

    @property
    def reserved(self) -> int:
        """What the driver's pools have."""
        return int(self.library.vgt_reserved())
