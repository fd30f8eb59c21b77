"""The CUDA runtime's functions, described by `protocol/spec_runtime`: model, short names for the entries, loader.

A runtime function travels nowhere: it is local logic that calls the driver's functions. An entry either says which
call that is (`forward`) or that its body is hand-written in shim/cudart (`custom`). A name of NVIDIA's library that has
no entry answers cudaErrorNotSupported.
"""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import dataclass
from enum import Enum

from protocol.gen.load import ROOT, Api
from protocol.gen.model import SpecError

MAJORS = (11, 12, 13)
SONAMES = {11: "libcudart.so.11.0", 12: "libcudart.so.12", 13: "libcudart.so.13"}
VERSIONS = {11: 11080, 12: 12080, 13: 13000}  # what cudaRuntimeGetVersion answers
SUFFIXES = ("_ptsz", "_ptds")


class Ready(Enum):
    """What a call needs before its body runs."""

    NOTHING = "nothing"
    DRIVER = "driver"  # libcuda is loaded and cuInit succeeded
    CONTEXT = "context"  # the calling thread has a current context


@dataclass(frozen=True)
class RuntimeFunction:
    name: str
    params: str  # as in C, without the parentheses
    majors: tuple[int, ...]
    ready: Ready
    call: str  # the driver call of a forward function; empty: hand-written
    returns: str  # other than cudaError_t: the body is called as it is, and no error is recorded
    uses: tuple[str, ...]  # driver functions a hand-written body calls

    def argument_names(self) -> list[str]:
        """Names of the parameters, in order."""
        if self.params == "void":
            return []
        return [re.findall(r"\w+", part)[-1] for part in self.params.split(",")]


@dataclass(frozen=True)
class DriverFunction:
    symbol: str
    params: str
    base: str  # what cuGetProcAddress is asked for
    version: int


@dataclass(frozen=True)
class Field:
    name: str
    c: str
    count: str  # "" or an array's length
    offset: int


@dataclass(frozen=True)
class Struct:
    name: str
    nbytes: int
    fields: tuple[Field, ...]


_functions: list[RuntimeFunction] = []
_prototypes: dict[str, str] = {}
_DRIVER_CALL = re.compile(r"\b(cu[A-Z]\w*)\(")


def forward(name: str, params: str, call: str, ready: Ready = Ready.CONTEXT, majors: tuple[int, ...] = MAJORS) -> None:
    """A function whose body is one driver call; its result is the driver's, the numbers being the same."""
    if not _DRIVER_CALL.search(call):
        raise SpecError(f"{name}: {call!r} calls no driver function")
    _functions.append(RuntimeFunction(name, params, majors, ready, call, "", ()))


def custom(
    name: str,
    params: str,
    uses: str = "",
    ready: Ready = Ready.CONTEXT,
    majors: tuple[int, ...] = MAJORS,
    returns: str = "",
) -> None:
    """A function with a hand-written body, `vgs_NAME(cu, ...)`; `cu` is the table of driver functions to call.

    Args:
        returns: the C type it returns, if not cudaError_t. Its body is `vgs_NAME(...)` then, called as it is.
        uses: the driver functions the body calls, divided by spaces.
    """
    _functions.append(RuntimeFunction(name, params, majors, ready, "", returns, tuple(uses.split())))


def driver(symbol: str, params: str) -> None:
    """The prototype of a driver function that protocol/spec does not describe yet."""
    _prototypes[symbol] = params


@dataclass
class Runtime:
    functions: list[RuntimeFunction]
    drivers: list[DriverFunction]
    exports: dict[int, list[str]]
    structs: dict[int, list[Struct]]
    errors: list[tuple[int, str, int, str]]  # code, name, first major, text ("": the driver's)

    def bodies(self, major: int) -> dict[str, RuntimeFunction]:
        """The described functions of one major, by name."""
        found: dict[str, RuntimeFunction] = {}
        for f in self.functions:
            if major in f.majors:
                if f.name in found:
                    raise SpecError(f"{f.name}: described twice for {major}")
                found[f.name] = f
        return found


def load_runtime(api: Api) -> Runtime:
    """Load the specification of the runtime and the data beside it.

    Raises:
        SpecError: an entry that no library of its major exports, or a driver function without a prototype.
    """
    _functions.clear()
    _prototypes.clear()
    package = importlib.import_module("protocol.spec_runtime")
    for module in package.MODULES:
        sys.modules.pop(f"protocol.spec_runtime.{module}", None)
        importlib.import_module(f"protocol.spec_runtime.{module}")
    exports = {
        major: (ROOT / f"data/{SONAMES[major].replace('.so.', '-')}-exports.txt").read_text().split()
        for major in MAJORS
    }
    runtime = Runtime(list(_functions), [], exports, {m: _structs(m) for m in MAJORS}, _errors())
    for major in MAJORS:
        known = {name.removesuffix("_ptsz").removesuffix("_ptds") for name in exports[major]}
        for name in runtime.bodies(major):
            if name not in known:
                raise SpecError(f"{name}: the runtime of CUDA {major} exports no such name")
    runtime.drivers = _drivers(api, runtime)
    return runtime


def _drivers(api: Api, runtime: Runtime) -> list[DriverFunction]:
    wanted = {symbol for f in runtime.functions for symbol in (*_DRIVER_CALL.findall(f.call), *f.uses)}
    bodies = api.implementation()
    origin = {
        symbol: (entry.base, version)
        for entry in api.procs
        if entry.flag == 0
        for version, symbol in reversed(entry.steps)
        if symbol
    }
    found = []
    for symbol in sorted(wanted):
        if symbol not in origin:
            raise SpecError(f"{symbol}: the driver's table of names has no such function")
        if symbol in bodies:
            params = ", ".join(p.declaration for p in bodies[symbol].args) or "void"
        elif symbol in _prototypes:
            params = _prototypes[symbol]
        else:
            raise SpecError(f"{symbol}: no prototype; describe it in protocol/spec_runtime/driver.py")
        found.append(DriverFunction(symbol, params, *origin[symbol]))
    return found


# Types of fields, as C without NVIDIA's headers: enumerations are ints, handles are the driver's.
_TYPES = {
    "cudaArray_t": "CUarray",
    "cudaStream_t": "CUstream",
    "cudaHostFn_t": "CUhostFn",
    "cudaUUID_t": "CUuuid",
    "cudaLaunchAttribute *": "CUlaunchAttribute *",
    "cudaLaunchAttributeValue": "CUlaunchAttributeValue",
    **{
        name: f"struct {name}"
        for name in ("cudaPos", "cudaExtent", "cudaPitchedPtr", "cudaMemLocation", "cudaMemPoolProps", "dim3")
    },
    "const cudaMemAccessDesc *": "const struct cudaMemAccessDesc *",
}
_PLAIN = {"char", "int", "long", "float", "size_t", "unsigned int", "unsigned char", "unsigned short"}


def _field_type(text: str, major: int) -> tuple[str, str]:
    """C type and array length of a cell such as `int[-/63/56]` (one length for each major)."""
    base, _, length = text.rstrip("]").partition("[")
    if "/" in length:
        length = length.split("/")[MAJORS.index(major)]
    if base in _PLAIN or base.endswith("*"):
        return _TYPES.get(base, base), length
    return _TYPES.get(base, "int"), length


def _structs(major: int) -> list[Struct]:
    """Layouts of one major, from data/cudart-layouts.tsv; a field's column holds its offset, or `-`."""
    rows: dict[str, list[list[str]]] = {}
    for line in (ROOT / "data/cudart-layouts.tsv").read_text().splitlines():
        if not line.startswith("#"):
            rows.setdefault(line.split("\t")[0], []).append(line.split("\t"))
    structs = []
    for name, lines in rows.items():
        column = 3 + MAJORS.index(major)
        nbytes, fields = 0, []
        for _, field, text, *_rest in lines:
            cell = [name, field, text, *_rest][column]
            if cell == "-":
                continue
            if field == ".":
                nbytes = int(cell)
            else:
                fields.append(Field(field, *_field_type(text, major), int(cell)))
        if nbytes:
            structs.append(Struct(name, nbytes, tuple(sorted(fields, key=lambda f: f.offset))))
    return structs


def _errors() -> list[tuple[int, str, int, str]]:
    errors = []
    for line in (ROOT / "data/cudart-errors.tsv").read_text().splitlines():
        if not line.startswith("#"):
            code, name, since, *text = line.split("\t")
            errors.append((int(code), name, int(since), text[0] if text else ""))
    return errors
