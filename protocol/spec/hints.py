"""Calls that change nothing here, for which success is a true answer."""

from protocol.gen.dsl import fn

fn("cuProfilerStart", [], asked="CUDA_SUCCESS", doc="No profiler is attached.")
fn("cuProfilerStop", [], asked="CUDA_SUCCESS", doc="No profiler is attached.")
