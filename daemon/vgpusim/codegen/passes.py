"""The compiler's passes, in order: each reads what those before it have made. A hook is called after each, with the
pass's name: tests verify there (verify.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vgpusim.codegen import cfg, constants, inline, liveness, nan_payload, uniformity, unset
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.cfg import Graph, Yields
from vgpusim.codegen.liveness import Liveness
from vgpusim.codegen.program import Program
from vgpusim.codegen.uniformity import Analysis
from vgpusim.ptx import ir
from vgpusim.ptx.error import InternalError, PtxError
from vgpusim.ptx.module import PtxModule


class State:
    """A kernel between passes: later passes read what earlier ones produced."""

    program: Program
    graph: Graph
    constants: dict[ir.Reg, ir.Operand]
    live: Liveness
    analysis: Analysis
    deferred: frozenset[ir.Reg]

    def __init__(
        self,
        module: PtxModule,
        name: str,
        block: tuple[int, int, int],
        cooperative: bool,
        confined: bool = True,
        watched: bool = False,
        cluster: tuple[int, int, int] | None = None,
        counted: bool = False,
        tracked: bool = False,
    ) -> None:
        self.module, self.name, self.block = module, name, block
        self.cooperative, self.cluster = cooperative, cluster
        self.confined = confined  # accesses are checked: emit_access
        self.watched = watched  # accesses are reported to the sanitizer: emit_watch
        self.counted = counted  # work is counted for the profiler: emit_count
        self.tracked = tracked  # a watched kernel follows values that nothing has written: unset

    @property
    def waits(self) -> bool:
        """Whether the kernel's CTAs, run by one thread, may wait for each other."""
        return self.cooperative or self.cluster is not None

    @property
    def several_warps(self) -> bool:
        return self.block[0] * self.block[1] * self.block[2] > WARP


@dataclass(frozen=True, slots=True)
class Pass:
    name: str
    run: Callable[[State], None]


def _inline(state: State) -> None:
    state.program = inline.flatten(state.module, state.name)


def _track(state: State) -> None:
    if state.tracked:
        unset.track(state.program)


def _build_graph(state: State) -> None:
    state.graph = cfg.build(
        state.program, Yields.OTHER_WARPS if state.waits or state.several_warps else Yields.OTHER_CTAS
    )


def _find_constants(state: State) -> None:
    state.constants = constants.find(state.program, state.graph)


def _compute_liveness(state: State) -> None:
    state.live = liveness.compute(state.graph)


def _analyse_uniformity(state: State) -> None:
    state.analysis = uniformity.analyse(state.program, state.graph, state.live, state.block)


def _find_deferred_nans(state: State) -> None:
    state.deferred = nan_payload.deferred(state.graph)


PASSES = (
    Pass("inline", _inline),  # module -> program: one flat body, parameters of calls in registers
    Pass(
        "unset values", _track
    ),  # program: for the sanitizer, what the kernel does with values that nothing has written
    Pass("control flow", _build_graph),  # -> graph: blocks in layout order, loops contiguous
    Pass("constants", _find_constants),  # -> constants: registers that hold the same value in the whole kernel
    Pass("liveness", _compute_liveness),  # -> live: registers that each block's start still needs
    Pass("uniformity", _analyse_uniformity),  # -> analysis: which registers are scalars, which blocks need masks
    Pass("NaN payloads", _find_deferred_nans),  # -> deferred: registers whose NaN is made canonical when it is read
)
"""After them the emitters (emit_*.py, driven by emit_control.py) write LLVM IR and native.py assembles it."""

HOOKS: list[Callable[[str, State], None]] = []


def run(state: State) -> State:
    """Raises: PtxError about the image; InternalError, with the pass's name, about anything else."""
    for step in PASSES:
        try:
            step.run(state)
            for hook in HOOKS:
                hook(step.name, state)
        except PtxError:
            raise
        except Exception as error:
            raise InternalError(state.name, f"pass {step.name}", error) from error
    return state
