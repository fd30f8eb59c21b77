"""Calls that change nothing here, for which success is a true answer."""

from protocol.gen.dsl import I32, NOT_SUPPORTED, NOTHING, fn, ptr, val

fn("cuProfilerStart", [], asked="CUDA_SUCCESS", doc="No profiler is attached.")
fn("cuProfilerStop", [], asked="CUDA_SUCCESS", doc="No profiler is attached.")
fn(
    "cuProfilerInitialize",
    [ptr("configFile", "const char *"), ptr("outputFile", "const char *"), val("outputMode", I32)],
    need=NOTHING,
    asked=NOT_SUPPORTED,
    doc="Always NOT_SUPPORTED from CUDA 12.0 on, says NVIDIA's manual.",
)
