"""Names that a module uses and nobody defines, judged as NVIDIA's ptxas and linker (nvJitLink) of 13.0 judge them.

A PTX text that is loaded is a whole program: a call of an undefined function is an error anywhere, an undefined
variable becomes one of its own. In what is linked, a variable must be defined, and a function if a kernel reaches it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from enum import Enum, auto

from vgpusim.ptx.error import PtxError
from vgpusim.ptx.text import PtxText

# Functions that ptxas takes from the driver; those that the simulator lacks are refused where they are called.
_DRIVERS = frozenset(
    (
        "vprintf",
        "vfprintf",
        "__assertfail",
        "malloc",
        "free",
        "cudaGraphLaunch",
        "cudaGraphSetConditional",
        "cudaGraphKernelNodeSetParam",
        "cudaGraphKernelNodeUpdatesApply",
        "vgpu_device_runtime",
    )
)
_DRIVERS_PREFIX = "__cuda_syscall"


class Rule(Enum):
    """What may be undefined."""

    WHOLE = auto()  # a PTX text is loaded
    LINKED = auto()  # texts have been linked
    PART = auto()  # a text is about to be linked


def is_drivers(name: str) -> bool:
    """Whether the driver has the function `name`."""
    return name in _DRIVERS or name.startswith(_DRIVERS_PREFIX)


def define_variables(text: PtxText) -> None:
    """Make undefined .extern variables of a whole program its own, as ptxas does with a warning.

    Raises:
        PtxError: INVALID_PTX for one without a size.
    """
    for name, decl in text.variables.items():
        if decl.linkage == "extern" and decl.space != "shared":
            if not decl.nbytes:
                raise PtxError(f"Unresolved extern variable '{name}'")
            text.variables[name] = replace(decl, linkage="visible")


def undefined_variables(texts: Sequence[PtxText], defined: Collection[str]) -> list[str]:
    """.extern variables that no text defines, in order."""
    found = {
        name: None
        for text in texts
        for name, decl in text.variables.items()
        if decl.linkage == "extern" and decl.space != "shared" and name not in defined
    }
    return list(found)


def refuse_calls(names: Iterable[str]) -> None:
    """Raises PtxError (INVALID_PTX) if there is a name."""
    if names := list(dict.fromkeys(names)):
        raise PtxError("; ".join(f"Unresolved extern function '{name}'" for name in names))


def refuse_references(names: Iterable[str]) -> None:
    """Raises PtxError (INVALID_PTX) if there is a name."""
    if names := list(dict.fromkeys(names)):
        raise PtxError("; ".join(f"Undefined reference to '{name}'" for name in names))
