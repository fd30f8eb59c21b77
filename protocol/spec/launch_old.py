"""Launches as of CUDA 1 to 3, over cuLaunchKernel."""

from protocol.gen.dsl import F32, I32, U32, fn, ptr, val

FUNCTION = ptr("hfunc", "CUfunction")
GRID = [ptr("f", "CUfunction"), val("grid_width", I32), val("grid_height", I32)]

fn("cuFuncSetBlockShape", [FUNCTION, val("x", I32), val("y", I32), val("z", I32)], doc="Block of later launches.")
fn("cuFuncSetSharedSize", [FUNCTION, val("bytes", U32)], doc="Dynamic shared memory of later launches.")
fn("cuParamSetSize", [FUNCTION, val("numbytes", U32)], doc="Size of the parameters.")
fn("cuParamSeti", [FUNCTION, val("offset", I32), val("value", U32)], doc="An integer among the parameters.")
fn("cuParamSetf", [FUNCTION, val("offset", I32), val("value", F32)], doc="A float among the parameters.")
fn(
    "cuParamSetv",
    [FUNCTION, val("offset", I32), ptr("source", "void *"), val("numbytes", U32)],
    doc="Bytes among the parameters.",
)
fn("cuLaunch", [ptr("f", "CUfunction")], stacked=True, doc="Launch one block.")
fn("cuLaunchGrid", GRID, stacked=True, doc="Launch a grid in the default stream.")
fn("cuLaunchGridAsync", [*GRID, ptr("hStream", "CUstream")], stacked=True, doc="Launch a grid.")
