"""The folder of this installation's guest libraries: in this package of a wheel or a bundle, else in a checkout's
build/guest."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED, _BUILT = _PACKAGE / "_lib", _PACKAGE.parent.parent / "build/guest"
LIBRARIES = _INSTALLED if _INSTALLED.is_dir() else _BUILT
