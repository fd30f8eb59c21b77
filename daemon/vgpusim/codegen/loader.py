"""Compiled kernels in executable memory."""

from __future__ import annotations

import hashlib
import threading

from vgpusim.codegen.compile import CompiledKernel
from vgpusim.codegen.emit_code import CODE_SYMBOL
from vgpusim.codegen.native import LoadedObject


class Loader:
    """Loads each object once and counts its users. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[bytes, tuple[LoadedObject, int]] = {}

    def load(self, compiled: CompiledKernel) -> int:
        """The address of the kernel's code (struct vgx_sim_code), valid until the matching unload()."""
        key = hashlib.sha256(compiled.object_code).digest()
        with self._lock:
            loaded, users = self._loaded.get(key, (None, 0))
            if loaded is None:
                loaded = LoadedObject(compiled.object_code)
            address = loaded.address(CODE_SYMBOL)
            if address == 0:
                raise RuntimeError("object without code")
            self._loaded[key] = (loaded, users + 1)
            return address

    def unload(self, compiled: CompiledKernel) -> None:
        """Drop the reference of one load(); the last one unmaps the code, which no thread may be running."""
        key = hashlib.sha256(compiled.object_code).digest()
        with self._lock:
            loaded, users = self._loaded.pop(key)
            if users > 1:
                self._loaded[key] = (loaded, users - 1)
