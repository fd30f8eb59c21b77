"""nvidia-ml-py on vgpu's libnvidia-ml, even if the machine has another one."""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

from vgpu_guest.libraries import LIBRARIES

_LIBRARY = LIBRARIES / "libnvidia-ml.so.1"


class NvmlUnavailableError(Exception):
    """The library is missing or finds no vgpud; the text is for the user."""


def open_nvml() -> Any:
    """Load the library, initialise it, and return the module `pynvml`.

    nvidia-ml-py asks the loader for "libnvidia-ml.so.1": it gets the library of that soname that is loaded already.

    Raises:
        NvmlUnavailableError: nothing was initialised.
    """
    try:
        ctypes.CDLL(str(_LIBRARY))
    except OSError as error:
        raise NvmlUnavailableError(f"{_LIBRARY} cannot be loaded: {error} (run `make shim`)") from error
    pynvml: Any = importlib.import_module("pynvml")

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_NoPermission as error:
        raise NvmlUnavailableError(f"vgpud refuses this client ({error})") from error
    except pynvml.NVMLError as error:
        raise NvmlUnavailableError(f"no vgpud answers ({error})") from error
    return pynvml
