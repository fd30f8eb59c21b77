"""Names of C++ as they were written, for what people read."""

from __future__ import annotations

import ctypes
import functools
import re

_MANGLED = re.compile(r"\b_Z[A-Za-z0-9_$.]+")
_MAX_NBYTES = 4096


@functools.cache
def _demangler() -> object | None:
    """__cxa_demangle of libstdc++, which LLVM needs as well; None without it."""
    try:
        function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    return function


def readable(name: str) -> str:
    """A mangled name demangled; any other name unchanged, also if demangling fails."""
    function = _demangler()
    if function is None or not name.startswith("_Z") or len(name) > _MAX_NBYTES or not callable(function):
        return name
    status = ctypes.c_int(-1)
    found = function(name.encode(), None, None, ctypes.byref(status))
    if not found:
        return name
    text = ctypes.string_at(found).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(found))
    return text


def text(line: str) -> str:
    """A line with every mangled name in it demangled."""
    return _MANGLED.sub(lambda found: readable(found[0]), line)
