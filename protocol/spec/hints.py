"""Calls that change nothing here and whose success says so truthfully."""

from protocol.gen.dsl import fn

fn("cuProfilerStart", [], doc="No profiler is attached.")
fn("cuProfilerStop", [], doc="No profiler is attached.")
