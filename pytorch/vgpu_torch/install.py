"""Replaces torch's CUDA kernels in this process, once, when CUDA is first used."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

from . import composites
from .build import BuildError, core_library
from .core import Core, CoreError, Kind
from .notice import explain
from .policy import Answer, decide
from .simulated import is_simulated
from .tables import Tables

if TYPE_CHECKING:
    from collections import Counter

_KINDS = {Answer.CPU: Kind.FALLBACK, Answer.REFUSED: Kind.REFUSAL, Answer.RANDOM: Kind.DISTRIBUTION}
# Torch's warnings that its wheel has no machine code for the device. A simulated device needs no machine code.
_MACHINE_CODE_WARNINGS = (
    r"Found GPU\d+ .* which is of compute capability",
    r"\s.* is not compatible with the current PyTorch",
)
_state: dict[str, Any] = {}  # objects that must live as long as the kernels


def install_or_explain() -> None:
    """Called by torch when it initialises CUDA; an exception here would be raised in the program."""
    if _state or not is_simulated():
        return
    import torch

    try:
        counts = install()
    except (BuildError, CoreError, OSError) as error:
        explain(f"PyTorch's kernels are not simulated: {error}")
        return
    for text in _MACHINE_CODE_WARNINGS:
        warnings.filterwarnings("ignore", message=text, category=UserWarning, module=r"torch\.cuda")
    tables = _state["tables"]
    if not tables.is_known:
        explain(f"torch {torch.__version__} is not known to this vgpu-torch: generic rules, dtypes are not checked")
    if os.environ.get("VGPU_TORCH_NOTICE") != "0":
        order = ", in stream order behind the program's back" if is_asynchronous() else ""
        explain(
            f"PyTorch's CUDA operators run as ATen's CPU kernels{order} ({counts[Answer.CPU]} operators; the numbers"
            " are the CPU's). VGPU_TORCH=0 turns this off, `vgpu torch` lists them."
        )


def _wait_before_memory_is_freed() -> None:
    """Make emptyCache wait, as cudaFree does on a GPU; otherwise memory is unmapped before operators have run."""
    import torch

    native = torch._C._cuda_emptyCache

    def wait_and_empty() -> None:
        torch.cuda.synchronize()
        native()

    torch._C._cuda_emptyCache = wait_and_empty


def is_asynchronous() -> bool:
    return os.environ.get("VGPU_TORCH") == "async"


def install() -> Counter[Answer]:
    """Replace the kernels.

    Returns:
        The number of operators with each answer.
    Raises:
        BuildError, CoreError: no kernels were replaced, or not all.
    """
    from collections import Counter

    import torch

    tables = Tables(torch.__version__, refuse_dtypes=os.environ.get("VGPU_TORCH_DTYPES") != "0")
    core = Core(
        core_library(),
        in_place=os.environ.get("VGPU_TORCH_COPY") != "1",
        asynchronous=is_asynchronous(),
        assertions_on_device=os.environ.get("VGPU_TORCH_ASSERT") == "device",
    )
    _state.update(core=core, tables=tables)
    own = composites.load()
    counts: Counter[Answer] = Counter()
    for decision in decide(own):
        counts[decision.answer] += 1
        kind = _KINDS.get(decision.answer)
        if kind is not None:
            if decision.name == "aten::copy_" and decision.key in ("CUDA", "QuantizedCUDA"):
                kind = Kind.COPY
            core.override(decision.name, decision.key, kind, tables.rules(decision.name, decision.key))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that a kernel is replaced
        libraries = {name: torch.library.Library(name, "IMPL") for name in {name.split("::")[0] for name in own}}
        for name, function in own.items():
            namespace, operator = name.split("::")
            libraries[namespace].impl(operator, function, "CUDA", allow_override=True)
    _state["libraries"] = libraries
    if is_asynchronous():
        _wait_before_memory_is_freed()
    return counts
