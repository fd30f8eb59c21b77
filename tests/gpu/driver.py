"""The few calls of the CUDA driver that scripts on a card need, by ctypes and numpy alone."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[Any]
_JIT_LOG, _JIT_LOG_NBYTES = 5, 6  # CU_JIT_ERROR_LOG_BUFFER and its size
_JIT_LEVEL = 7  # CU_JIT_OPTIMIZATION_LEVEL


class Refusal(Exception):
    """A call of the driver did not succeed."""


class Driver:
    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        context = ctypes.c_void_p()
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self("cuCtxSetCurrent", context)

    def works(self) -> bool:
        """False once an error has ended the context; this process can have no other."""
        return bool(self.cuda.cuCtxSynchronize() == 0)

    def __call__(self, name: str, *arguments: object) -> None:
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            raise Refusal(f"{name}: {result}")

    def load(self, text: str, level: int = 4) -> ctypes.c_void_p:
        """A module from PTX. Raises Refusal with the first line of the compiler's log that names an error."""
        module, log = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
        options = (ctypes.c_int * 3)(_JIT_LOG, _JIT_LOG_NBYTES, _JIT_LEVEL)
        values = (ctypes.c_void_p * 3)(ctypes.addressof(log), len(log), level)
        try:
            self("cuModuleLoadDataEx", ctypes.byref(module), text.encode(), 3, options, values)
        except Refusal as error:
            lines = [line for line in log.value.decode(errors="replace").splitlines() if "error" in line]
            raise Refusal(f"{error}: {lines[0].strip() if lines else ''}") from None
        return module

    def launch(self, module: ctypes.c_void_p, grid: int, block: int, *arguments: int, name: str = "k") -> None:
        """Run a kernel of the module with 64-bit arguments."""
        function, values = ctypes.c_void_p(), [ctypes.c_uint64(value) for value in arguments]
        self("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        listed = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, None, listed, None)
        self("cuCtxSynchronize")

    def copy(self, array: Words) -> int:
        """Device memory with the array's contents."""
        address = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(array.nbytes))
        self("cuMemcpyHtoD_v2", address, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))
        return address.value

    def read(self, address: int, array: Words) -> None:
        self("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), ctypes.c_uint64(address),
             ctypes.c_size_t(array.nbytes))  # fmt: skip

    def free(self, address: int) -> None:
        self("cuMemFree_v2", ctypes.c_uint64(address))

    def run(self, text: str, grid: int, block: int, words: Words, result: Words, *more: Words) -> None:
        """Run the kernel k of a PTX text with the addresses of copies of the arrays; the second one is read back."""
        module = self.load(text)
        try:
            addresses = [self.copy(np.ascontiguousarray(array)) for array in (words, result, *more)]
            self.launch(module, grid, block, *addresses)
            self.read(addresses[1], result)
            for address in addresses:
                self.free(address)
        finally:
            self.cuda.cuModuleUnload(module)
