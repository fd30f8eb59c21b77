"""Reads the specification and the data beside it into one `Api`, and checks that they fit each other."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

from protocol.gen import dsl
from protocol.gen.model import Channel, Function, Kind, Need, SpecError, Turn
from protocol.spec import MODULES

ROOT = Path(__file__).resolve().parent.parent
IDS_LOCK = ROOT / "ids.lock"
MAX_PROC_STEPS = 5


@dataclass(frozen=True)
class ProcEntry:
    """The answers of cuGetProcAddress for a base name: for each first version a symbol (None: nothing)."""

    base: str
    flag: int  # 0, or 2 for per-thread default streams
    steps: tuple[tuple[int, str | None], ...]


@dataclass
class Api:
    functions: list[Function]
    host_functions: list[Function]
    kinds: tuple[Kind, ...]
    quotas: tuple[str, ...]
    groups: dict[str, str]  # what can be denied, and in words
    exports: list[str]  # every name the library exports, sorted
    own_exports: list[str]  # names that no driver exports
    procs: list[ProcEntry]
    error_names: list[tuple[int, str]]

    def travelling(self) -> list[Function]:
        return [f for f in self.functions if f.travels]

    def backend_members(self) -> list[Function]:
        members = {f.name: f for f in self.functions if f.backend}
        members.update({f.name: f for f in self.host_functions})
        return [members[name] for name in sorted(members)]

    def implementation(self) -> dict[str, Function]:
        """Each exported name that has a body, with its function."""
        names: dict[str, Function] = {}
        for f in self.functions:
            if f.exported:
                for name in (f.name, *f.aliases):
                    if name in names:
                        raise SpecError(f"{name}: exported by {names[name].name} and {f.name}")
                    names[name] = f
        return names


def load(write_lock: bool = False) -> Api:
    """Load everything.

    Args:
        write_lock: append opcodes for new functions to ids.lock instead of refusing them.
    """
    dsl.functions.clear()
    dsl.host_functions.clear()
    dsl.own_exports.clear()
    for module in MODULES:
        dsl.begin_module(module)
        name = f"protocol.spec.{module}"
        sys.modules.pop(name, None)
        importlib.import_module(name)
    functions = list(dsl.functions)
    _check_turns(functions)
    _assign_opcodes(functions, write_lock)
    _assign_versions(functions)
    return Api(
        functions,
        list(dsl.host_functions),
        dsl.KINDS,
        dsl.QUOTAS,
        dict(dsl.GROUPS),
        sorted(set((ROOT / "data/libcuda-580-exports.txt").read_text().split()) | _named(functions) | _proc_symbols()),
        sorted(dsl.own_exports),
        _procs(),
        _error_names(),
    )


def _check_turns(functions: list[Function]) -> None:
    for f in functions:
        if f.turn is Turn.OVERTAKES and f.need is Need.CONTEXT:
            raise SpecError(f"{f.name}: what overtakes enters no context")
        if f.channel is Channel.BESIDE and f.turn is not Turn.OVERTAKES:
            raise SpecError(f"{f.name}: what is sent beside queued calls overtakes them")


def _named(functions: list[Function]) -> set[str]:
    return {name for f in functions if f.exported for name in (f.name, *f.aliases)}


def _assign_opcodes(functions: list[Function], write_lock: bool) -> None:
    """Opcodes never change and are never given twice: ids.lock only grows."""
    lock: dict[str, int] = {}
    for line in IDS_LOCK.read_text().splitlines() if IDS_LOCK.exists() else []:
        opcode, name = line.split()
        if name in lock or int(opcode) in lock.values():
            raise SpecError(f"{name}: twice in ids.lock")
        lock[name] = int(opcode)
    new = [f.name for f in functions if f.travels and f.name not in lock]
    if new and not write_lock:
        raise SpecError(f"{new[0]}: no opcode in ids.lock; run `python -m protocol.gen --write-lock`")
    for name in new:
        lock[name] = max(lock.values(), default=0) + 1
    if new:
        IDS_LOCK.write_text("".join(f"{opcode} {name}\n" for name, opcode in lock.items()))
    for f in functions:
        f.opcode = lock[f.name] if f.travels else 0


def _assign_versions(functions: list[Function]) -> None:
    """The first driver version that has a function: by cuGetProcAddress's data, unless the entry states it."""
    first: dict[str, int] = {}
    for entry in _procs():
        for version, symbol in entry.steps:
            if symbol:
                first[symbol] = min(version, first.get(symbol, version))
    for f in functions:
        f.since = f.since or first.get(f.name, 0)


def _procs() -> list[ProcEntry]:
    """The map a 580 driver answers (protocol/data), without the data's probes of wrong names and versions."""
    entries = []
    for line in (ROOT / "data/proc-address-580.tsv").read_text().splitlines():
        base, flag, *cells = (line + "\t").rstrip("\n").split("\t")
        cells = [cell for cell in cells if cell]
        if flag not in ("0", "2") or not base.startswith("cu"):
            continue
        steps: list[tuple[int, str | None]] = []
        for cell in cells:
            version, symbol = cell.split(":", 1)
            if not symbol.startswith("error"):
                steps.append((int(version), None if symbol == "null" else symbol))
        if len(steps) > MAX_PROC_STEPS:
            raise SpecError(f"{base}: more than {MAX_PROC_STEPS} versions")
        entries.append(ProcEntry(base, int(flag), tuple(steps)))
    return sorted(entries, key=lambda e: (e.base, e.flag))


def _proc_symbols() -> set[str]:
    return {symbol for entry in _procs() for _, symbol in entry.steps if symbol}


def _error_names() -> list[tuple[int, str]]:
    rows = [line.split("\t") for line in (ROOT / "data/error-names.tsv").read_text().splitlines()]
    return sorted((int(row[0]), row[1]) for row in rows if len(row) >= 2 and row[0].isdigit())
