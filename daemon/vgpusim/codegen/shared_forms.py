"""Functions that kernels compiled quickly share (outline.py), compiled once for all of them: the candidates that a
library tries one after another consist of the same few hundred. Such a function has a module and an object of its own;
its name is a hash of its text and of everything that it uses."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable

from vgpusim.codegen import native
from vgpusim.codegen.cache import DiskCache, key_of

PREFIX = "vgx."
_NAME_DIGITS = 32  # hexadecimal, of a function's hash
PLACEHOLDER = "@vgx.form("  # a function's name in its text, until it is known
_KEPT_NBYTES = 32 << 20  # of objects that this process has compiled or read
_USED = re.compile(r'@([\w.]+|"[^"]*")|(?<!\w)(![0-9]+)')
_NAME, _METADATA = re.compile(r'@([\w.]+|"[^"]*")'), re.compile(r"(![0-9]+)")

_lock = threading.Lock()
_objects: OrderedDict[str, bytes] = OrderedDict()  # by name, those used last at the end
_nbytes = 0  # of them


class Definitions:
    """What a kernel's text has beside @warp."""

    def __init__(self, text: str) -> None:
        self._attributes = ""
        self._texts: dict[str, str] = {}
        inside: list[str] = []
        for line in text.splitlines(keepends=True):
            if inside or line.startswith("define "):
                inside.append(line)
                if line.startswith("}"):
                    self._add(_NAME, "".join(inside))
                    inside = []
            elif line.startswith(("declare ", "@")):
                self._add(_NAME, line)
            elif line.startswith("!"):
                self._add(_METADATA, line)
            elif line.startswith("attributes "):
                self._attributes += line

    def _add(self, name: re.Pattern[str], text: str) -> None:
        found = name.search(text)
        assert found is not None, text
        self._texts[found[1]] = text

    def module_of(self, function: str) -> str | None:
        """The text of a module with this function alone; None: it uses what there can be but one of."""
        used = self._used([function])
        if not used <= self._texts.keys():
            return None
        texts = [self._texts[name] for name in sorted(used)]
        if any(text[0] == "@" and " = private constant " not in text for text in texts):
            return None
        return "".join((function, *texts, self._attributes))

    def without_unused(self, text: str, users: Iterable[str]) -> str:
        """Text without the functions that neither `users` nor the rest of the text needs."""
        internal = {name: own for name, own in self._texts.items() if own.startswith("define internal ")}
        rest = text
        for own in internal.values():
            rest = rest.replace(own, "")
        used = self._used([*users, rest])
        for name, own in internal.items():
            if name not in used:
                text = text.replace(own, "")
        return text

    def _used(self, texts: Iterable[str]) -> set[str]:
        """The names that texts use, and what these use."""
        found: set[str] = set()
        left = list(texts)
        while left:
            for symbol, metadata in _USED.findall(left.pop().replace(PLACEHOLDER, "(")):
                name = symbol or metadata
                if name not in found:
                    found.add(name)
                    left.append(self._texts.get(name, ""))
        return found


def name_of(module: str, version: bytes) -> str:
    return PREFIX + key_of("form", version, native.cpu_name(), module)[:_NAME_DIGITS]


def objects_of(modules: dict[str, str], cache: DiskCache | None) -> dict[str, bytes]:
    """The object of each module, by its function's name."""
    made: dict[str, bytes] = {}
    for name, module in modules.items():
        with _lock:
            known = _objects.get(name)
            if known is not None:
                _objects.move_to_end(name)
        made[name] = known or _object(name, module, cache)
    return made


def _object(name: str, module: str, cache: DiskCache | None) -> bytes:
    key = name.removeprefix(PREFIX)
    code = cache.get(key) if cache is not None else None
    if code is None:
        code = native.assemble_quickly(module.replace(PLACEHOLDER, f"@{name}("))
        missing = native.missing_symbols(code)
        if missing:
            raise LookupError(f"{name} needs {', '.join(missing)}")
        if cache is not None:
            cache.put(key, code)
    _keep(name, code)
    return code


def _keep(name: str, code: bytes) -> None:
    global _nbytes
    with _lock:
        _nbytes += len(code) - len(_objects.pop(name, b""))
        _objects[name] = code
        while _nbytes > _KEPT_NBYTES:
            _nbytes -= len(_objects.popitem(last=False)[1])
