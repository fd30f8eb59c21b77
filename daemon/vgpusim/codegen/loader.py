"""Compiled kernels in executable memory."""

from __future__ import annotations

import ctypes
import hashlib
import threading
from dataclasses import dataclass

from vgpusim.codegen.compile import CompiledKernel
from vgpusim.codegen.emit_code import CODE_SYMBOL, QUICK_SYMBOL
from vgpusim.codegen.native import LoadedObject


class _Quick(ctypes.Structure):
    """struct vgx_sim_quick of device/vgx_sim_abi.h."""

    _fields_ = (("warp", ctypes.c_uint64), ("budget_ns", ctypes.c_uint64), ("spent_ns", ctypes.c_uint64))


@dataclass(slots=True)
class _Loaded:
    object: LoadedObject
    users: int
    quick: CompiledKernel | None  # until its function is replaced
    whole: LoadedObject | None = None  # that has the function that replaced it


class Loader:
    """Loads each object once and counts its users. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[bytes, _Loaded] = {}

    def load(self, compiled: CompiledKernel) -> int:
        """The address of the kernel's code (struct vgx_sim_code), valid until the matching unload()."""
        key = hashlib.sha256(compiled.object_code).digest()
        with self._lock:
            loaded = self._loaded.get(key)
            if loaded is None:
                quick = compiled if compiled.whole else None
                loaded = _Loaded(LoadedObject(compiled.object_code), 0, quick)
            address = loaded.object.address(CODE_SYMBOL)
            if address == 0:
                raise RuntimeError("object without code")
            self._loaded[key] = loaded
            loaded.users += 1
            return address

    def unload(self, compiled: CompiledKernel) -> None:
        """Drop the reference of one load(); the last one unmaps the code, which no thread may be running."""
        key = hashlib.sha256(compiled.object_code).digest()
        with self._lock:
            loaded = self._loaded[key]
            loaded.users -= 1
            if loaded.users == 0:
                del self._loaded[key]

    def take_due(self) -> list[CompiledKernel]:
        """Loaded kernels that were compiled quickly and have used up their time; each is given out once."""
        due = []
        with self._lock:
            for loaded in self._loaded.values():
                if loaded.quick is not None:
                    state = _Quick.from_address(loaded.object.address(QUICK_SYMBOL))
                    if state.spent_ns >= state.budget_ns:
                        due.append(loaded.quick)
                        loaded.quick = None
        return due

    def replace(self, quick: CompiledKernel, whole: CompiledKernel) -> None:
        """Let a kernel that was compiled quickly go on in other code that does the same. Its threads may be running."""
        key = hashlib.sha256(quick.object_code).digest()
        made = LoadedObject(whole.object_code)
        with self._lock:
            loaded = self._loaded.get(key)
            # Else nobody uses it any more, or it was loaded again meanwhile and has been replaced: threads may run the
            # code that would go.
            if loaded is not None and loaded.whole is None:
                loaded.quick, loaded.whole = None, made
                state = _Quick.from_address(loaded.object.address(QUICK_SYMBOL))
                state.warp = ctypes.c_uint64.from_address(made.address(CODE_SYMBOL)).value
