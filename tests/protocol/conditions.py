"""Field values for the C conditions of entries (`violations`, `worker_answers`): what a valid record holds in those
fields, and records in which only such a condition is wrong. The stubs treat all addresses but one as reachable."""

from __future__ import annotations

from typing import NamedTuple

OUT_OF_REACH, WHOLE_COPY, SPLIT, INSIDE = 0xBAD, 6, 7, 6  # an address, two nodes and a graph, as in vgt_dispatch.c
VIOLATION, SUCCESS, INVALID_VALUE, NOT_SUPPORTED = -1, 0, 1, 801


class Wrong(NamedTuple):
    fields: dict[str, int]
    expected: int
    reaches: bool = False  # whether a stub is called


ROWS = {"width": 2, "height": 2}  # 4 bytes: the length of a valid record's variable part
BOX = ROWS | {"depth": 1}
EMPTY = [Wrong({name: 0}, SUCCESS) for name in ("width", "height")]
NO_BOX = [Wrong({name: value}, VIOLATION) for name, value in (("width", 3), ("height", 0), ("depth", 0), ("depth", 2))]


def _unreachable(*fields: str) -> list[Wrong]:
    return [Wrong({name: OUT_OF_REACH}, INVALID_VALUE) for name in fields]


FAR = [Wrong({f"{side}Array": 0, f"{side}Address": OUT_OF_REACH}, INVALID_VALUE) for side in ("dst", "src")]

LENGTHS = dict.fromkeys(("vgpuMemcpy2DToDevice", "vgpuMemcpy2DToHost", "vgpuArrayWrite", "vgpuArrayRead"), "nbytes")


def following(name: str, changes: dict[str, int]) -> dict[str, int]:
    """What a record with a changed length must hold, so that nothing else is wrong with it."""
    nbytes = changes.get(LENGTHS.get(name, ""))
    return {} if nbytes is None else {"width": nbytes, "height": 1}


HOST_NODES = ("cuGraphAddHostNode", "cuGraphHostNodeSetParams", "cuGraphExecHostNodeSetParams")

RIGHT: dict[str, dict[str, int]] = {
    "vgpuMemcpy2DToDevice": ROWS,
    "vgpuMemcpy2DToHost": ROWS,
    "vgpuMemcpy2DOnDevice": ROWS,
    "vgpuArrayWrite": BOX,
    "vgpuArrayRead": BOX,
    "vgpuArrayCopy": BOX,
    **{name: {"callback": 0x80000000} for name in HOST_NODES},
    "vgpuGraphSetHalves": {"callback": 0x80000000, "width": 1},
}
WRONG: dict[str, list[Wrong]] = {
    **{name: [Wrong({"callback": 1}, VIOLATION)] for name in HOST_NODES},
    "cuGraphAddMemcpyNode": FAR,
    "cuGraphAddMemAllocNode": _unreachable("bytesize"),
    "cuGraphExecMemcpyNodeSetParams": [*FAR, Wrong({"hNode": SPLIT}, NOT_SUPPORTED)],
    "cuGraphMemcpyNodeSetParams": [*FAR, Wrong({"hNode": SPLIT}, NOT_SUPPORTED)],
    "cuGraphMemcpyNodeGetParams": [Wrong({"hNode": SPLIT}, NOT_SUPPORTED)],
    "vgpuGraphMoveChild": [Wrong({"hGraph": INSIDE}, INVALID_VALUE)],
    "vgpuGraphSwapNodes": [Wrong({name: SPLIT}, NOT_SUPPORTED) for name in ("hNode", "other")],
    "vgpuGraphSetHalves": [*FAR, Wrong({"callback": 1}, VIOLATION)],
    **{name: _unreachable("dptr") for name in ("cuTexRefSetAddress_v2", "cuTexRefSetAddress2D_v3")},
    "cuDevSmResourceSplitByCount": [Wrong({"input": 5}, INVALID_VALUE)],
    "cuGraphDestroyNode": [Wrong({"hNode": SPLIT}, NOT_SUPPORTED)],
    "cuCtxCreate_v2": _unreachable("dev"),
    "vgpuGraphAddConditional": _unreachable("condition"),
    "cuGraphChildGraphNodeGetGraph": [Wrong({"hNode": WHOLE_COPY}, INVALID_VALUE)],
    **{name: _unreachable("image") for name in ("cuModuleLoadData", "cuLibraryLoadData")},
    "cuTexObjectCreate": _unreachable("array"),
    "cuTexObjectDestroy": _unreachable("texObject"),
    "cuSurfObjectDestroy": _unreachable("surfObject"),
    "vgpuMemcpyPinnedToDevice": _unreachable("src"),
    "vgpuMemcpyPinnedToHost": _unreachable("dst"),
    "vgpuMemcpy2DToDevice": [Wrong({"width": 3}, VIOLATION), Wrong({"height": 0}, VIOLATION)],
    "vgpuMemcpy2DToHost": [Wrong({"width": 3}, VIOLATION), Wrong({"height": 0}, VIOLATION)],
    "vgpuMemcpy2DOnDevice": EMPTY + _unreachable("src", "dst"),
    "vgpuArrayWrite": NO_BOX,
    "vgpuArrayRead": NO_BOX,
    "vgpuArrayCopy": [
        *EMPTY,
        Wrong({"depth": 0}, SUCCESS),
        Wrong({"dstArray": 0, "srcArray": 0}, VIOLATION),
        *FAR,
    ],
}
