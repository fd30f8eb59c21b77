"""A kernel as one flat body, which the inliner makes and all later passes read."""

from __future__ import annotations

from dataclasses import dataclass, field

from vgpusim.ptx import ir


@dataclass(slots=True)
class Program:
    """A kernel ready for analysis."""

    name: str
    body: list[ir.Instruction | ir.Label]
    params: dict[str, int]  # byte offset in the parameter block
    param_nbytes: int
    shared: dict[str, int]  # byte offset in the shared window
    shared_nbytes: int  # static, with the system's part
    reserved_shared_nbytes: int  # the system's part, at offset 0
    locals: dict[str, int] = field(default_factory=dict)  # byte offset in a thread's local memory
    local_nbytes: int = 0
    symbols: list[str] = field(default_factory=list)  # module variables, in the order of vgx_sim_launch.symbols
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    begins_again: bool = False  # a call through a pointer may need a function that the kernel lacks: emit_absent.py
