"""For drivers before 12.4: the executor asks here where a kernel's parameters lie in its image (vgx_cuda_params.h)."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

from vgpusim.image.error import ImageError
from vgpusim.image.kernel_params import KernelParams
from vgpusim.ptx.error import PtxError

if TYPE_CHECKING:
    from collections.abc import Callable

_SUCCESS, _INVALID_VALUE, _NOT_FOUND = 0, 1, 500  # CUresult


class _Reader:
    """The images of a session that are loaded."""

    def __init__(self, ffi: Any) -> None:
        self._ffi = ffi
        self._images: dict[int, KernelParams | None] = {}
        self._names = itertools.count(1)

    def open(self, data: Any, nbytes: int, image: Any) -> int:
        """Add an image. An unreadable one is not an error, as the driver has accepted it, but has no kernels here."""
        number = next(self._names)
        self._images[number] = None
        try:
            self._images[number] = KernelParams(bytes(self._ffi.buffer(data, nbytes)))
        except ImageError as error:
            _say(f"an image's kernels cannot be read: {error}")
        image[0] = number
        return _SUCCESS

    def close(self, image: int) -> None:
        """Forget an image."""
        del self._images[image]

    def param(self, image: int, kernel: Any, index: int, offset: Any, nbytes: Any) -> int:
        """Find the offset and the size of one parameter of a kernel."""
        read, name = self._images[image], self._ffi.string(kernel).decode(errors="replace")
        try:
            layout = None if read is None else read.layout(name)
        except (ImageError, PtxError) as error:
            _say(f"the parameters of {name} cannot be read: {error}")
            return _NOT_FOUND
        if layout is None:
            return _NOT_FOUND
        if index >= len(layout):
            return _INVALID_VALUE
        offset[0], nbytes[0] = layout[index]
        return _SUCCESS


def install(ffi: Any, lib: Any) -> None:
    """Install a reader for the driver that is started next, which uses it if it is older than 12.4."""
    reader = _Reader(ffi)
    hooks: dict[str, Callable[..., Any]] = {"open": reader.open, "close": reader.close, "param": reader.param}
    for name, served in hooks.items():
        ffi.def_extern(name=f"vgx_py_params_{name}", error=None if name == "close" else _NOT_FOUND)(served)
    lib.vgx_cuda_install_python()


def _say(line: str) -> None:
    os.write(2, b"<4>" + line.replace("\n", " ").encode() + b"\n")
