"""The description of a kernel's code, for the scheduler: struct vgx_sim_code of device/vgx_sim_abi.h, as data."""

from __future__ import annotations

from enum import IntEnum

from vgpusim.codegen.emit_cluster import Dimensions
from vgpusim.codegen.emit_layout import FrameLayout

CODE_SYMBOL = "vgx_code"
MEMBERS = {
    "warp": "ptr",
    "frames_nbytes": "i64",
    "locals_nbytes": "i64",
    "turn": "i64",
    "warp_count": "i32",
    "turns": "i32",
    "cluster": "[3 x i32]",
    "flush": "i32",
}


class Turns(IntEnum):
    """enum vgx_sim_turns."""

    IN_ORDER = 0
    LOCKSTEP = 1
    BARRIERS = 2
    RESIDENT = 3
    CLUSTERS = 4
    INTERLEAVED = 5


def turns_of(barriers: bool, resident: bool, interleaved: bool, lockstep: bool, cluster: Dimensions | None) -> Turns:
    """How a kernel's warps take turns."""
    if cluster is not None:
        return Turns.CLUSTERS
    if resident:
        return Turns.RESIDENT
    if interleaved:
        return Turns.INTERLEAVED
    if lockstep:
        return Turns.LOCKSTEP
    return Turns.BARRIERS if barriers else Turns.IN_ORDER


def describe(warp_count: int, frame: FrameLayout, turns: Turns, flush: bool, cluster: Dimensions | None) -> str:
    """Text of the description, whose warps run by @warp."""
    axes = ", ".join(f"i32 {count}" for count in cluster or (1, 1, 1))
    values = ("@warp", frame.nbytes, frame.locals_nbytes, frame.turn, warp_count, turns.value, f"[{axes}]", int(flush))
    members = [f"{kind} {value}" for kind, value in zip(MEMBERS.values(), values, strict=True)]
    return f"@{CODE_SYMBOL} = constant {{ {', '.join(MEMBERS.values())} }} {{ {', '.join(members)} }}\n"
