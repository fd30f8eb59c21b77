"""The folder of the guest libraries: inside this package in a wheel or bundle, otherwise build/guest of the
checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED, _BUILT = _PACKAGE / "_lib", _PACKAGE.parent.parent / "build/guest"
LIBRARIES = _INSTALLED if _INSTALLED.is_dir() else _BUILT
